// How a call of attention is divided for a GPU: tiles of queries, and the steps of 64 slots that each tile takes. Pure
// computation on the host, before the launch.
//
// A tile is a number of consecutive queries of a kv head (the same for all heads). Steps of 64 slots below the commit
// point are the same for all queries and are read from KV chunks. From there on, the slots of a token depend on its
// path, so steps are gathered: for each step the tile's tokens are divided into runs, in order, in which each path
// extends or repeats the ones before it on this step. A run is read once, along its longest path, and each row masks
// what is past its own position: a prompt or a chain has one run, siblings have one each. No division changes the bits
// of a query: a step that is not its own leaves it unchanged, and a step of its own has the same rows in the same slots
// however it is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

/// Properties of a GPU that decide how calls are divided; they never change bits.
struct AttentionCard {
    std::int32_t n_multiprocessors = 1;
    std::size_t l2_bytes = 0;
};

/// The launch plan of a call of attention: how it is divided into KV chunks, tiles and gathers. Its vectors are the
/// host arrays of the launch.
struct AttentionPlan {
    // KV chunks of the call of which some token sees something; none if first_chunk >= end_chunk.
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
    std::int32_t end_table = 0;  // KV chunks [first_chunk, end_table) hold committed positions
    // KV chunks from first_chunk on that the launch is made for: those up to end_chunk, and possibly more, of which no
    // token sees anything.
    std::int32_t launch_chunks = 0;
    AttentionWay way = AttentionWay::Folded;
    std::int32_t warps_per_tile = 1;
    std::int32_t wave_chunks = 0;  // KV chunks in a wave; only for AttentionWay::Parallel
    std::vector<AttentionTile> tiles;
    std::vector<AttentionGather> gathers;
    std::vector<std::int32_t> rows;  // scratch rows of the gathers (AttentionGather::rows_at)

    /// Returns the number of KV chunks of which some token sees something.
    [[nodiscard]] std::int32_t n_chunks() const { return end_chunk > first_chunk ? end_chunk - first_chunk : 0; }
    /// Returns the number of KV chunks with committed positions: the entries that the launch needs of the table of KV
    /// chunks.
    [[nodiscard]] std::int32_t n_table() const { return end_table > first_chunk ? end_table - first_chunk : 0; }
    /// Returns the number of waves of AttentionWay::Parallel; at least 1, also if there are no KV chunks.
    [[nodiscard]] std::int32_t n_waves() const {
        return launch_chunks <= wave_chunks ? 1 : (launch_chunks + wave_chunks - 1) / wave_chunks;
    }
    /// Whether the launches of both plans are equal except for the contents of their arrays.
    [[nodiscard]] bool launches_like(const AttentionPlan& other) const {
        return way == other.way && warps_per_tile == other.warps_per_tile && wave_chunks == other.wave_chunks &&
               launch_chunks == other.launch_chunks && tiles.size() == other.tiles.size();
    }
};

/// The most that a plan for `n_tokens` tokens gathers. In the worst case every token is at the end of a chain of all of
/// them and each of its steps is gathered for it alone, which rounds its rows up at both ends.
struct GatherBounds {
    std::int64_t rows = 0;     // scratch rows in AttentionPlan::rows
    std::int64_t gathers = 0;  // gathered steps in AttentionPlan::gathers
};
[[nodiscard]] constexpr GatherBounds gather_bounds(std::int64_t n_tokens) {
    return {.rows = n_tokens * (n_tokens + 1) / 2 + 2 * kStepTokens * n_tokens,
            .gathers = n_tokens * (n_tokens / kStepTokens + 2)};
}

/// Divides the queries of `args` into tiles of `tile_rows` for KV chunks [plan.first_chunk, plan.end_chunk), and
/// appends the tiles and their gathers to `plan`.
void cut_tiles(const AttentionArgs& args, std::int32_t tile_rows, AttentionPlan& plan);

/// Returns the launch plan of a call that suits the GPU; with tiles if tensor cores compute the call
/// (attention_on_tensor_cores()).
[[nodiscard]] AttentionPlan plan_attention(const AttentionArgs& args, const AttentionCard& card);
/// Writes the launch plan of a call that suits the GPU to `plan`, whose vectors keep their memory. The launch is made
/// for at least `least_chunks` KV chunks.
void plan_attention(const AttentionArgs& args, const AttentionCard& card, std::int64_t least_chunks,
                    AttentionPlan& plan);

/// Cuts the plan.launch_chunks KV chunks of AttentionWay::Parallel into waves.
void cut_waves(const AttentionArgs& args, const AttentionCard& card, AttentionPlan& plan);

/// Returns the number of scratch rows of all paths: the length of args.path_rows.
[[nodiscard]] std::int64_t n_path_rows(const AttentionArgs& args);

/// Returns the parameters of the launch. Arrays are pointers to host memory, of `args` and `plan`: the caller must copy
/// them to device memory, and then call place_scratch().
[[nodiscard]] AttentionLaunch attention_launch(const AttentionArgs& args, const AttentionPlan& plan);

/// attention_scratch_floats() returns the floats of scratch that the call needs for the states of a wave and the fold
/// between waves; place_scratch() sets the pointers to them in `launch`. `floats`: device memory of that size.
[[nodiscard]] std::size_t attention_scratch_floats(const AttentionPlan& plan, const AttentionArgs& args);
void place_scratch(const AttentionPlan& plan, float* floats, AttentionLaunch& launch);

/// Most tokens of a call whose output is prepared for the following matmul. Calls of more tokens usually fold in
/// registers, and preparing is a small part of their work.
inline constexpr std::int64_t kMostPreparedTokens = 64;

/// Returns bytes of scratch that no call of up to `n_tokens` tokens exceeds.
[[nodiscard]] std::size_t attention_scratch_bytes(const KvLayout& shape, std::int64_t n_q_heads, std::int64_t n_tokens,
                                                  const AttentionCard& card);

[[nodiscard]] KvType kv_type(DType type);

}  // namespace slipstream::cuda
