// What the machine can do at most, measured: the two ceilings that benches compare against.
#pragma once

#include <cstddef>

#include "kernels/base/thread_pool.h"

namespace slipstream {

struct MachinePeaks {
    double read_gb_per_s = 0;    // sum of 64-byte loads over `data`, all threads of the pool
    double fma_gflop_per_s = 0;  // independent f32 fused multiply-adds in registers, widest form, all threads
};

/// Best of several runs. `data` should be larger than the caches and already touched. About half a second.
[[nodiscard]] MachinePeaks measure_peaks(ThreadPool& pool, const std::byte* data, std::size_t bytes);

}  // namespace slipstream
