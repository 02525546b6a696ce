#include "tools/bench/bench_machine.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMostBytes = 512U << 20;  // bytes read to measure bandwidth; larger than the caches
constexpr std::size_t kLeastBytes = 16U << 20;

}  // namespace

BenchMachine measure_machine(Device& device, int n_threads) {
    if (device.kind() == DeviceKind::Cuda) {
        const cuda::DeviceProperties& card = static_cast<CudaDevice&>(device).properties();
        return {DeviceKind::Cuda, card.name, n_threads, {.read_gb_per_s = card.memory_bytes_per_second * 1e-9}};
    }
    const HostMemory memory = host_memory();
    const std::size_t bytes =
        memory.total_bytes == 0 ? kMostBytes : std::clamp(memory.available_bytes / 4, kLeastBytes, kMostBytes);
    // A CPU device of its own, without the memory budget of `device`.
    CpuDevice cpu({.n_threads = n_threads, .form = {}});
    const Buffer data = cpu.allocate(bytes, MemoryTag::Workspace, "memory to measure bandwidth with");
    std::memset(data.data(), 1, bytes);
    return {DeviceKind::Cpu, cpu_model(), n_threads, measure_peaks(cpu.pool(), data.data(), bytes)};
}

}  // namespace slipstream::tools
