#include "runtime/formats/family.h"

#include "kernels/base/check.h"

namespace slipstream {

const Family& find_family(std::string_view name) {
    for (const Family* family : kFamilies)
        if (family->name == name) return *family;
    check_failed(__FILE__, __LINE__, "name", fmt::format("unknown family \"{}\"", name));
}

}  // namespace slipstream
