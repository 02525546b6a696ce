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

}  // namespace slipstream::cuda
