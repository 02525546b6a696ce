// The lock that keeps two programs from writing one session or chat: an advisory lock (flock) on the open file itself.
// It is gone when its descriptor is closed, so that a killed program leaves none.
#pragma once

#include <cstdint>
#include <filesystem>

namespace slipstream {

/// Whether a session is continued, by one program at a time, or read, by any number.
enum class SessionUse : std::uint8_t { GoOn, Read };

/// Locks the open file `descriptor`; `path` is for the message. Throws RequestError if another program has the lock. A
/// file system without locks keeps no program out.
void lock_session(int descriptor, const std::filesystem::path& path, SessionUse use);

/// Whether `path` names the open file `descriptor`. A file that was replaced, or removed, between its opening and its
/// locking has lost the name: the caller must then open the path again.
[[nodiscard]] bool is_file_of_name(int descriptor, const std::filesystem::path& path);

}  // namespace slipstream
