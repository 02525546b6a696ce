#include "runtime/formats/file_presence.h"

#include <fmt/format.h>

#include <system_error>

#include "kernels/base/error.h"

namespace slipstream {

bool is_there(const std::filesystem::path& path) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (status.type() == std::filesystem::file_type::not_found) return false;
    if (error) throw IoError(fmt::format("cannot read {}: {}", path.string(), error.message()));
    return true;
}

}  // namespace slipstream
