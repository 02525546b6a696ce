// How much memory this machine, or the container around this process, can still give. Touching more than that does not
// fail on Linux: the system ends a process, ours as a rule. So the arena asks before it touches.
#pragma once

#include <cstddef>
#include <filesystem>

namespace slipstream {

/// Bytes available without pushing anything out but cached files: the least of what /proc/meminfo says and of what each
/// control group (version 2) from this process's upward has left below its limit. The largest size_t where nothing is
/// known. `root` is where proc/ and sys/ are looked for.
[[nodiscard]] std::size_t available_host_bytes(const std::filesystem::path& root = "/");

}  // namespace slipstream
