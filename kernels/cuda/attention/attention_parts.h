// What launch_attention() is made of, a source each so that they compile side by side.
#pragma once

#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

// Chunk states of a wave: `n_chunks` chunks, the first of them `first_chunk` behind the call's first, to wave_o,
// wave_m, wave_l.
void parallel_f16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);
void parallel_bf16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);
void parallel_plain(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream);

// The whole fold.
void folded_f16(const AttentionLaunch& a, void* stream);
void folded_bf16(const AttentionLaunch& a, void* stream);
void folded_plain(const AttentionLaunch& a, void* stream);

/// Folds a wave's states, chunks ascending, into what stands at `start` (null: fresh). To a.out where `out` is null
/// (divided by l), else to `out`, a state.
void join_chunks(const AttentionLaunch& a, int n_chunks, const float* start, float* out, void* stream);

}  // namespace slipstream::cuda
