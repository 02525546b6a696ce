#include "kernels/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace slipstream {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
    std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s\n", file, line, condition, message.empty() ? "" : ": ",
                 message.c_str());
    std::abort();
}

}  // namespace slipstream
