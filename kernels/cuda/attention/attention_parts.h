// The parts of launch_attention(), in separate source files so that they compile in parallel.
#pragma once

#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

// These compute the states of a wave: `n_chunks` KV chunks, beginning `first_chunk` KV chunks after the call's first
// one. They write wave_o, wave_m and wave_l.
void parallel_f16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);
void parallel_bf16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);
void parallel_q8(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);
void parallel_plain(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);

// These compute the whole fold of a call: all its KV chunks, to a.out or a.state.
void folded_f16(const AttentionLaunch& a, void* stream);
void folded_bf16(const AttentionLaunch& a, void* stream);
void folded_q8(const AttentionLaunch& a, void* stream);
void folded_plain(const AttentionLaunch& a, void* stream);

/// Folds the states of a wave, KV chunks ascending, into the state at `start` (null: a fresh state). Writes the result,
/// divided by l, to a.out if `out` is null, else the state to `out`.
void join_chunks(const AttentionLaunch& a, int n_chunks, const float* start, float* out, void* stream);

/// Enqueues the waves of AttentionWay::Parallel, each joined to the fold of the previous ones. `parallel(first_chunk,
/// n_chunks)` enqueues the kernel that computes the states of a wave.
template <class Parallel>
void launch_waves(const AttentionLaunch& a, const Parallel& parallel, void* stream) {
    const float* start = a.start;
    const int end = a.end_chunk - a.first_chunk;
    int chunk = 0;
    do {  // runs also without KV chunks: the join must still start or end the fold
        const int n = end - chunk < a.wave_chunks ? end - chunk : a.wave_chunks;
        const bool last = chunk + n == end;
        if (n > 0) parallel(chunk, n);
        join_chunks(a, n, start, last ? (a.out != nullptr ? nullptr : a.state) : a.running, stream);
        start = a.running;
        chunk += n;
    } while (chunk < end);
}

}  // namespace slipstream::cuda
