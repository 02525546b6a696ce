#include "runtime/formats/suppressed_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/base/error.h"

namespace slipstream {

void tidy_suppressed_tokens(GenerationDefaults& defaults, std::int64_t vocab) {
    std::vector<TokenId>& ids = defaults.suppressed_tokens;
    std::erase_if(ids, [&](TokenId id) { return id < 0 || id >= vocab; });
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (!ids.empty() && std::ssize(ids) == vocab)
        throw FormatError(fmt::format("suppress_tokens lists all {} tokens, so nothing can be generated", vocab));
}

}  // namespace slipstream
