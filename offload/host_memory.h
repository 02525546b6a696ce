// How much memory the machine, or the container around this process, has left. On Linux, touching more memory than that
// does not fail: the system kills a process, usually ours. So the arena asks before it touches memory.
#pragma once

#include <cstddef>
#include <filesystem>

namespace slipstream {

/// Returns the bytes that can be used if nothing but cached files is evicted: the minimum of MemAvailable in
/// /proc/meminfo and of what each control group (version 2), from this process's group up to the root, has left below
/// its limit. Returns the largest size_t if nothing is known. `root` is the folder that holds proc/ and sys/.
[[nodiscard]] std::size_t available_host_bytes(const std::filesystem::path& root = "/");

}  // namespace slipstream
