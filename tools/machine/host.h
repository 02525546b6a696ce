// Facts about the machine and the process: cores, memory, instruction sets, the program's folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// Returns the number of physical cores that this process may run on, at least 1. The hardware threads of a core count
/// once.
[[nodiscard]] int physical_cores();
/// Returns the number of physical cores of the given CPUs, at least 1. `cpu_tree` has the layout of
/// /sys/devices/system/cpu; a CPU whose core it does not name counts as a core.
[[nodiscard]] int physical_cores(const std::filesystem::path& cpu_tree, const std::vector<int>& cpus);

/// Returns how many CPUs' worth of time control groups allow the process, rounded up and at least 1; nothing if there
/// is no limit. `group_tree` has the layout of /sys/fs/cgroup, version 2 or 1, and `own_groups` is the text of
/// /proc/self/cgroup. The lowest limit of a group and its ancestors counts.
[[nodiscard]] std::optional<int> cpu_limit(const std::filesystem::path& group_tree, std::string_view own_groups);

/// Returns the default number of compute threads: physical cores, or fewer if a control group limits them.
[[nodiscard]] int default_threads();

struct HostMemory {
    std::size_t total_bytes = 0;
    std::size_t available_bytes = 0;  // bytes that can be allocated without swapping; includes the page cache
};
/// Returns the memory of /proc/meminfo, reduced to the limit of a control group (version 2, as a container sees its
/// own) if there is one. Values that are unknown are 0.
[[nodiscard]] HostMemory host_memory();

/// Returns the largest resident set of this process so far, in bytes.
[[nodiscard]] std::size_t peak_resident_bytes();

/// Returns the folder of the running program; empty if it is unknown.
[[nodiscard]] std::filesystem::path program_folder();

/// Returns the model name of the CPU as /proc/cpuinfo has it; "unknown" if it has none.
[[nodiscard]] std::string cpu_model();

/// Returns which of the instruction sets "sse4.2", "avx", "avx2", "avx512f", ... the CPU supports; empty unless the
/// program is built for x86-64.
[[nodiscard]] std::vector<std::string> cpu_features();

}  // namespace slipstream::tools
