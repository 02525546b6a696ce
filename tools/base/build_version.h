// Which Slipstream this is. The commit comes from a source made at build time (cmake/write_commit.cmake).
#pragma once

#include <string_view>

namespace slipstream::tools {

/// "0.1.0".
[[nodiscard]] std::string_view build_version();
/// Commit that was built, with "-dirty" where files differed from it; "unknown" where git or its data was absent.
[[nodiscard]] std::string_view build_commit();

}  // namespace slipstream::tools
