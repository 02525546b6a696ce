// Whether a file is there, told apart from not being allowed to know: a file that may not be looked at is an error, for
// going on without it would quietly give another model than the directory holds.
#pragma once

#include <filesystem>

namespace slipstream {

/// False where nothing is at `path` (nor behind it, for a link). Throws IoError naming the path and the system's reason
/// where the system does not say (no permission, a loop of links). Whether the file can be read shows when it is.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

}  // namespace slipstream
