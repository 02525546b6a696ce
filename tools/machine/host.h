// What the machine gives: cores, memory, where the program lies, how much it has used.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// Cores that this process may run on; the threads of one core count once. At least 1.
[[nodiscard]] int physical_cores();
/// The same from a tree like /sys/devices/system/cpu, for the given CPUs.
[[nodiscard]] int physical_cores(const std::filesystem::path& cpu_tree, const std::vector<int>& cpus);

/// CPUs' worth of time that control groups leave to the process, rounded up and at least 1; nothing where there is no
/// limit. `group_tree` is like /sys/fs/cgroup, of version 2 or 1, and `own_groups` like /proc/self/cgroup; the limits
/// of a group and of all above it hold together.
[[nodiscard]] std::optional<int> cpu_limit(const std::filesystem::path& group_tree, std::string_view own_groups);

/// Threads to compute with where nobody says: physical cores, or fewer where a control group allows fewer.
[[nodiscard]] int default_threads();

struct HostMemory {
    std::size_t total_bytes = 0;
    std::size_t available_bytes = 0;  // without swapping; page cache counts as free
};
/// From /proc/meminfo, lowered to the limit of a control group where there is one. Zeros where nothing is known.
[[nodiscard]] HostMemory host_memory();

/// Highest resident set so far.
[[nodiscard]] std::size_t peak_resident_bytes();

/// Folder that the running program lies in.
[[nodiscard]] std::filesystem::path program_folder();

/// Returns the model name of the CPU as /proc/cpuinfo has it; "unknown" if it has none.
[[nodiscard]] std::string cpu_model();

/// Names of the instruction sets that kernels may use here, "avx2", "avx512f", ...
[[nodiscard]] std::vector<std::string> cpu_features();

}  // namespace slipstream::tools
