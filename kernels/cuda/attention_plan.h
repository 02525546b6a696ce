// How a call of attention is cut for a card: tiles of queries, and the steps each takes. Pure; runs on the host before
// the launch.
//
// A tile is consecutive queries of a kv head (the same for all heads). Steps of 64 slots that lie below the commit
// point are the same for all and are read from chunks. From there on a token's slots depend on its path, so steps are
// gathered: for each step the tile's tokens fall into runs, in order, in which each path extends or repeats the ones
// before on this step. A run is read once, along its longest path, and each row masks what lies behind its own
// position: a prompt or a chain has one run, siblings one each. No cut changes the bits of a query: a step that is not
// its own leaves it alone, and one of its own holds the same rows in the same slots however it is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention_launch.h"

namespace slipstream::cuda {

struct AttentionPlan {
    // Chunks of the call that a token sees; none where first >= end.
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
    std::int32_t end_table = 0;  // chunks [first_chunk, end_table) hold committed positions
    AttentionWay way = AttentionWay::Folded;
    std::int32_t warps_per_tile = 1;
    std::int32_t wave_chunks = 0;  // Parallel
    std::vector<AttentionTile> tiles;
    std::vector<AttentionGather> gathers;
    std::vector<std::int32_t> rows;  // scratch rows of gathers

    [[nodiscard]] std::int32_t n_chunks() const { return end_chunk > first_chunk ? end_chunk - first_chunk : 0; }
    [[nodiscard]] std::int32_t n_table() const { return end_table > first_chunk ? end_table - first_chunk : 0; }
    /// Waves of the parallel way; a call without chunks has one all the same.
    [[nodiscard]] std::int32_t n_waves() const {
        return n_chunks() <= wave_chunks ? 1 : (n_chunks() + wave_chunks - 1) / wave_chunks;
    }
};

/// Tiles of `tile_rows` queries for chunks [first_chunk, end_chunk) of `args`.
void cut_tiles(const AttentionArgs& args, std::int32_t tile_rows, AttentionPlan& plan);

/// The way that suits a card of `n_multiprocessors`, and its tiles where tensor cores compute.
[[nodiscard]] AttentionPlan plan_attention(const AttentionArgs& args, std::int32_t n_multiprocessors);

/// The launch of a call. Arrays are where they lie on the host: the caller puts them into device memory, and scratch in
/// its place.
[[nodiscard]] AttentionLaunch attention_launch(const AttentionArgs& args, const AttentionPlan& plan);

/// Floats that states of a wave and the fold between waves take, and their place.
[[nodiscard]] std::size_t attention_scratch_floats(const AttentionPlan& plan, const AttentionArgs& args);
void place_scratch(const AttentionPlan& plan, float* floats, AttentionLaunch& launch);

/// Bytes of scratch that no call of up to `n_tokens` tokens exceeds.
[[nodiscard]] std::size_t attention_scratch_bytes(const KvShape& shape, std::int64_t n_q_heads, std::int64_t n_tokens,
                                                  std::int32_t n_multiprocessors);

[[nodiscard]] KvType kv_type(DType type);

}  // namespace slipstream::cuda
