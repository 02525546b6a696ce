// Version of the program. The commit is in a source file that is written at build time
// (tools/cmake/write_commit.cmake).
#pragma once

#include <string_view>

namespace slipstream::tools {

/// Returns the version: "0.1.0".
[[nodiscard]] std::string_view build_version();
inline constexpr std::string_view kUnknownCommit = "unknown";
/// Returns the commit that was built, with "-dirty" if files differed from it; kUnknownCommit if git or its data was
/// missing.
[[nodiscard]] std::string_view build_commit();

}  // namespace slipstream::tools
