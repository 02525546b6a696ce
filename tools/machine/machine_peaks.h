// Measures the peaks of the machine with which benchmarks compare: memory read bandwidth and FMA throughput.
#pragma once

#include <cstddef>

#include "kernels/base/thread_pool.h"

namespace slipstream {

struct MachinePeaks {
    double read_gb_per_s = 0;    // reading `data` once, all threads of the pool
    double fma_gflop_per_s = 0;  // independent f32 multiply-adds in registers (2 FLOP each), all threads
};

/// Returns a time in seconds, from an arbitrary start, for differences. With one thread it is the CPU time of the
/// calling thread, so that other processes on the core do not count; with more threads, the time of a steady clock.
[[nodiscard]] double busy_seconds(int n_threads);

/// Measures the peaks: the best of several runs by busy_seconds(), about half a second in all. `data` should be larger
/// than the caches, and already touched; whole MiB of it are read.
[[nodiscard]] MachinePeaks measure_peaks(ThreadPool& pool, const std::byte* data, std::size_t bytes);

}  // namespace slipstream
