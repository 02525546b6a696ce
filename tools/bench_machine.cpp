#include "tools/bench_machine.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "kernels/cpu_device.h"
#include "tools/host.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMostBytes = 512U << 20;  // larger than the caches
constexpr std::size_t kLeastBytes = 16U << 20;

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

}  // namespace

BenchMachine measure_machine(int n_threads) {
    const HostMemory memory = host_memory();
    const std::size_t bytes =
        memory.total_bytes == 0 ? kMostBytes : std::clamp(memory.available_bytes / 4, kLeastBytes, kMostBytes);
    CpuDevice device({.n_threads = n_threads, .form = {}});
    const Buffer data = device.allocate(bytes, MemoryTag::Workspace, "memory to measure bandwidth with");
    std::memset(data.data(), 1, bytes);
    return {cpu_name(), n_threads, measure_peaks(device.pool(), data.data(), bytes)};
}

}  // namespace slipstream::tools
