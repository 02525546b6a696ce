// Distinguishes a missing file from one that cannot be checked. The latter is an error: going on without the file would
// silently give another model than the one in the directory.
#pragma once

#include <filesystem>

namespace slipstream {

/// Returns false if there is nothing at `path` (or where a link leads). Throws IoError with the path and the system's
/// reason if that cannot be found out (no permission, a loop of links). Does not check whether the file can be read.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

}  // namespace slipstream
