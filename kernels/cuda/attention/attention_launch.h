// Parameters of the attention kernels: plain data, pointers into device memory. What is computed stands in
// kernels/attention.h; how a call is cut into tiles, steps and waves in attention_plan.h; the written-down order of a
// query's arithmetic in attention_warp.cuh (tensor cores) and attention_plain.cu (all else).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/activation_destination.h"

namespace slipstream::cuda {

enum class KvType : std::int32_t { F32, F16, BF16 };

/// Whether mma computes attention over such a cache, rather than the plain kernel. Decides the bits of a result, so it
/// follows from the model alone.
[[nodiscard]] constexpr bool attention_on_tensor_cores(KvType type, std::int32_t head_dim) {
    return type != KvType::F32 && (head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256);
}

inline constexpr std::int32_t kWarpRows = 16;  // queries of one warp: the rows of an mma

/// Consecutive queries of one kv head that a block takes together: row r is query first_query + r, which is head
/// (first_query + r) % group of token (first_query + r) / group.
struct AttentionTile {
    std::int32_t first_query = 0;
    std::int32_t n_rows = 0;
    // Steps of 64 slots, counted from position 0: [first_step, end_step) lie in chunks whole and are read there for all
    // rows, then follow the gathers, in ascending steps.
    std::int32_t first_step = 0;
    std::int32_t end_step = 0;
    std::int32_t first_gather = 0;
    std::int32_t end_gather = 0;
};

/// A step put together by position for rows whose paths agree on it. Slots below n_committed come from their chunk,
/// those up to end_slot from scratch row rows[rows_at + slot], the others are 0.
struct AttentionGather {
    std::int32_t step = 0;
    std::int32_t first_row = 0;  // of the tile; only these take the step
    std::int32_t end_row = 0;
    std::int32_t end_slot = 0;
    std::int32_t rows_at = 0;
};

/// What of a launch follows from where its text has come to: a graph reads it anew at each launch.
struct AttentionPlace {
    std::int32_t n_committed = 0;
    std::int32_t first_chunk = 0;
    std::int32_t table_first = 0;
};

enum class AttentionWay : std::int32_t {
    Folded,    // a block folds all its chunks in registers
    Parallel,  // a block a chunk, states to memory, then joined in ascending order; a wave of chunks at a time
};

struct AttentionLaunch {
    KvType type = KvType::F16;
    AttentionWay way = AttentionWay::Folded;
    std::int32_t n_tokens = 0;
    std::int32_t n_q_heads = 0;
    std::int32_t n_kv_heads = 0;
    std::int32_t head_dim = 0;

    const float* q = nullptr;  // [n_tokens, n_q_heads * head_dim], tokens q_stride floats apart
    std::int64_t q_stride = 0;
    float* out = nullptr;  // the same shape; null: the fold goes to `state`
    std::int64_t out_stride = 0;
    float scale_log2 = 1.0F;  // scale * log2(e): weights are powers of two of scaled scores
    std::int32_t window = 0;  // 0 = all

    const std::int32_t* positions = nullptr;  // [n_tokens]
    std::int32_t n_committed = 0;
    // Chunks of the fold, [first_chunk, end_chunk); pointer of chunk c: chunks[c - table_first].
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
    const std::byte* const* chunks = nullptr;
    std::int32_t table_first = 0;
    // In device memory: stands for the fields of its names, and end_chunk moves along with its first_chunk. Chunks
    // that no query sees, which end_chunk may then count, leave no trace. Null: the fields are what they say.
    const AttentionPlace* place = nullptr;
    const std::byte* scratch_k = nullptr;  // [n_rows, n_kv_heads, head_dim]
    const std::byte* scratch_v = nullptr;

    // Tensor cores.
    const AttentionTile* tiles = nullptr;  // [n_tiles]
    std::int32_t n_tiles = 0;
    std::int32_t warps_per_tile = 1;  // Parallel: 1 to 4, each of 16 rows; Folded: kFoldWarps, tiles of fold_rows()
    const AttentionGather* gathers = nullptr;
    const std::int32_t* rows = nullptr;
    // Plain.
    const std::int32_t* path_begin = nullptr;  // [n_tokens], as in AttentionArgs
    const std::int32_t* path_rows = nullptr;

    const float* start = nullptr;  // state to go on from; null: fresh
    float* state = nullptr;        // where the fold is left if `out` is null: o, m, l planes (AttentionArgs::state)
    // Parallel: states of a wave of chunks, [wave][n_queries][head_dim] and twice [n_queries][wave]; between waves the
    // fold stands in `running`, laid out like `state` (unused where one wave takes all).
    std::int32_t wave_chunks = 0;
    float* wave_o = nullptr;
    float* wave_m = nullptr;
    float* wave_l = nullptr;
    float* running = nullptr;
    ActivationDestination prepare{};  // of `out`; Parallel, head_dim a multiple of 32

    [[nodiscard]] constexpr std::int64_t n_queries() const { return std::int64_t{n_tokens} * n_q_heads; }
};

inline constexpr std::int32_t kMaxParallelWarps = 4;
inline constexpr std::int32_t kFoldWarps = 4;

/// Rows of a tile that is folded in registers: a head of 256 is cut into two halves of values, each a warp's.
[[nodiscard]] constexpr std::int32_t fold_rows(std::int32_t head_dim) {
    return kWarpRows * kFoldWarps / (head_dim > 128 ? 2 : 1);
}

void launch_attention(const AttentionLaunch& launch, void* stream);

}  // namespace slipstream::cuda
