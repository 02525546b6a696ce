// What the machine can do at most, measured: the two ceilings that benches compare against.
#pragma once

#include <cstddef>

#include "kernels/base/thread_pool.h"

namespace slipstream {

struct MachinePeaks {
    double read_gb_per_s = 0;    // sum of 64-byte loads over `data`, all threads of the pool
    double fma_gflop_per_s = 0;  // independent f32 fused multiply-adds in registers, widest form, all threads
};

/// Seconds, from an arbitrary start: of this thread's CPU time where it works alone, so that a neighbour's share of the
/// core does not count; else of the clock on the wall.
[[nodiscard]] double busy_seconds(int n_threads);

/// Best of several runs, by busy_seconds. `data` should be larger than the caches and already touched. About half a
/// second.
[[nodiscard]] MachinePeaks measure_peaks(ThreadPool& pool, const std::byte* data, std::size_t bytes);

}  // namespace slipstream
