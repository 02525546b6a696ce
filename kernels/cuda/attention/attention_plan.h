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
#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

/// What of a card decides how calls are cut; never their bits.
struct AttentionCard {
    std::int32_t n_multiprocessors = 1;
    std::size_t l2_bytes = 0;
};

struct AttentionPlan {
    // Chunks of the call that a token sees; none where first >= end.
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
    std::int32_t end_table = 0;  // chunks [first_chunk, end_table) hold committed positions
    // Chunks from first_chunk on that the launch is made for: those, or more, of which no token sees anything.
    std::int32_t launch_chunks = 0;
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
        return launch_chunks <= wave_chunks ? 1 : (launch_chunks + wave_chunks - 1) / wave_chunks;
    }
    /// Whether the launches of both are alike but for what their arrays hold.
    [[nodiscard]] bool launches_like(const AttentionPlan& other) const {
        return way == other.way && warps_per_tile == other.warps_per_tile && wave_chunks == other.wave_chunks &&
               launch_chunks == other.launch_chunks && tiles.size() == other.tiles.size();
    }
};

/// Most that a plan for `n_tokens` tokens gathers: at worst every token is the end of a chain of all of them, and each
/// of its steps gathered for it alone, which rounds its rows up at both ends.
struct GatherBounds {
    std::int64_t rows = 0;
    std::int64_t gathers = 0;
};
[[nodiscard]] constexpr GatherBounds gather_bounds(std::int64_t n_tokens) {
    return {.rows = n_tokens * (n_tokens + 1) / 2 + 2 * kStepTokens * n_tokens,
            .gathers = n_tokens * (n_tokens / kStepTokens + 2)};
}

/// Tiles of `tile_rows` queries for chunks [first_chunk, end_chunk) of `args`.
void cut_tiles(const AttentionArgs& args, std::int32_t tile_rows, AttentionPlan& plan);

/// The way that suits a card, and its tiles where tensor cores compute.
[[nodiscard]] AttentionPlan plan_attention(const AttentionArgs& args, const AttentionCard& card);
/// The same into `plan`, whose vectors serve again; for launches of at least `least_chunks` chunks.
void plan_attention(const AttentionArgs& args, const AttentionCard& card, std::int64_t least_chunks,
                    AttentionPlan& plan);

/// Scratch rows of all paths: the length of args.path_rows.
[[nodiscard]] std::int64_t n_path_rows(const AttentionArgs& args);

/// The launch of a call. Arrays are where they lie on the host: the caller puts them into device memory, and scratch in
/// its place.
[[nodiscard]] AttentionLaunch attention_launch(const AttentionArgs& args, const AttentionPlan& plan);

/// Floats that states of a wave and the fold between waves take, and their place.
[[nodiscard]] std::size_t attention_scratch_floats(const AttentionPlan& plan, const AttentionArgs& args);
void place_scratch(const AttentionPlan& plan, float* floats, AttentionLaunch& launch);

/// Most tokens whose outputs are laid out for the matmul behind.
inline constexpr std::int64_t kMostPreparedTokens = 64;

/// Bytes of scratch that no call of up to `n_tokens` tokens exceeds.
[[nodiscard]] std::size_t attention_scratch_bytes(const KvShape& shape, std::int64_t n_q_heads, std::int64_t n_tokens,
                                                  const AttentionCard& card);

[[nodiscard]] KvType kv_type(DType type);

}  // namespace slipstream::cuda
