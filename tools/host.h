// What the machine gives: cores, memory, where the program lies, how much it has used.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace slipstream::tools {

/// Cores that this process may run on; the threads of one core count once. At least 1.
[[nodiscard]] int physical_cores();
/// The same from a tree like /sys/devices/system/cpu, for the given CPUs.
[[nodiscard]] int physical_cores(const std::filesystem::path& cpu_tree, const std::vector<int>& cpus);

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

/// Names of the instruction sets that kernels may use here, "avx2", "avx512f", ...
[[nodiscard]] std::vector<std::string> cpu_features();

}  // namespace slipstream::tools
