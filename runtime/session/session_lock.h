// The lock that keeps two programs from writing to the same session or chat: an advisory lock (flock) on the open file
// itself. It ends when its descriptor is closed, so a killed program leaves no lock behind.
#pragma once

#include <cstdint>
#include <filesystem>

namespace slipstream {

/// Whether a session is continued, by one program at a time, or only read, by any number of programs.
enum class SessionUse : std::uint8_t { GoOn, Read };

/// Locks the open file `descriptor`; `path` appears in the message. Throws RequestError if another program has the
/// lock. On a file system without locks, it does nothing.
void lock_session(int descriptor, const std::filesystem::path& path, SessionUse use);

/// Returns whether `path` still names the open file `descriptor`. If it does not, the file was replaced or removed
/// between opening and locking: the caller must then open the path again.
[[nodiscard]] bool is_file_of_name(int descriptor, const std::filesystem::path& path);

}  // namespace slipstream
