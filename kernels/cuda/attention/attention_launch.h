// Parameters of the attention kernels: plain data, pointers to device memory. What is computed: kernels/attention.h.
// How a call is divided into tiles, steps and waves: attention_plan.h. The order of a query's arithmetic:
// attention_warp.cuh (tensor cores) and attention_plain.cu (all else).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/activation_destination.h"

namespace slipstream::cuda {

/// Type of keys and values in the KV cache. Q8: rows of codes and scales (kv_launch.h).
enum class KvType : std::int32_t { F32, F16, BF16, Q8 };

/// Whether attention over such a KV cache is computed by mma, not by the plain kernel. It decides the bits of results,
/// so it depends on the model alone. `softcap`: 0: scores are not capped. Kernels with a softcap are only compiled for
/// the heads of models that have one (Gemma 2).
[[nodiscard]] constexpr bool attention_on_tensor_cores(KvType type, std::int32_t head_dim, float softcap) {
    const bool is_compiled =
        head_dim == 128 || head_dim == 256 || (softcap == 0.0F && (head_dim == 64 || head_dim == 96));
    return type != KvType::F32 && is_compiled;
}

/// Queries of one warp: 16, the rows of an mma.
inline constexpr std::int32_t kWarpRows = 16;

/// Consecutive queries of one kv head that a thread block computes together: row r is query first_query + r, which is
/// query head (first_query + r) % group of the kv head and token (first_query + r) / group; group = query heads per kv
/// head.
struct AttentionTile {
    std::int32_t first_query = 0;
    std::int32_t n_rows = 0;
    // Steps of 64 slots, counted from position 0. Steps [first_step, end_step) are entirely in KV chunks and are read
    // from there for all rows. Then the gathers [first_gather, end_gather) follow, in ascending steps.
    std::int32_t first_step = 0;
    std::int32_t end_step = 0;
    std::int32_t first_gather = 0;
    std::int32_t end_gather = 0;
};

/// A step of 64 slots that is put together by position, for rows whose paths agree on it. Slots below n_committed come
/// from their KV chunk, those up to end_slot from scratch row rows[rows_at + slot], all others are 0.
struct AttentionGather {
    std::int32_t step = 0;
    std::int32_t first_row = 0;  // rows [first_row, end_row) of the tile take the step
    std::int32_t end_row = 0;
    std::int32_t end_slot = 0;
    std::int32_t rows_at = 0;
};

/// The parameters of a launch that depend on how long the sequence is. A graph reads them again at each launch.
/// Meanings: the fields of AttentionLaunch with the same names.
struct AttentionPlace {
    std::int32_t n_committed = 0;
    std::int32_t first_chunk = 0;
    std::int32_t table_first = 0;
};

/// How the KV chunks of a call are divided over thread blocks. Both ways give the same bits.
enum class AttentionWay : std::int32_t {
    Folded,    // a thread block folds all its KV chunks in registers
    Parallel,  // a thread block per KV chunk; states go to memory and are joined in ascending order, a wave of chunks
               // at a time
};

/// Parameters of one call. All pointers that the launched kernel reads are to device memory.
struct AttentionLaunch {
    KvType type = KvType::F16;
    AttentionWay way = AttentionWay::Folded;
    std::int32_t n_tokens = 0;
    std::int32_t n_q_heads = 0;
    std::int32_t n_kv_heads = 0;
    std::int32_t head_dim = 0;

    const float* q = nullptr;  // [n_tokens, n_q_heads * head_dim], rows q_stride floats apart
    std::int64_t q_stride = 0;
    float* out = nullptr;  // shape of q, rows out_stride floats apart; null: the fold goes to `state`
    std::int64_t out_stride = 0;
    // What q . k is multiplied by. Without a softcap: scale * log2(e), since weights are powers of two of scaled
    // scores. With one: 2 log2(e) scale / softcap, since tanh is computed from a power of two (softcap.cuh).
    float scale_log2 = 1.0F;
    std::int32_t window = 0;  // sliding window in positions; 0: all

    const std::int32_t* positions = nullptr;  // [n_tokens]
    std::int32_t n_committed = 0;
    // KV chunks of the fold, [first_chunk, end_chunk). The pointer of KV chunk c is chunks[c - table_first].
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
    const std::byte* const* chunks = nullptr;
    std::int32_t table_first = 0;
    // If not null, replaces the fields with the same names, and end_chunk moves by as much as first_chunk. Then
    // end_chunk may include KV chunks that no query sees, which change no bit. Null: the fields apply.
    const AttentionPlace* place = nullptr;
    const std::byte* scratch_k = nullptr;  // [n_rows, n_kv_heads] rows of head_dim elements
    const std::byte* scratch_v = nullptr;

    // Only kernels for tensor cores read the five fields from here to `rows`: tiles of queries, gathered steps, and the
    // scratch rows of gathers. The arrays are then device copies of those of AttentionPlan, in the device's staging
    // memory (host/staging.h), which the device owns. Otherwise they may be addresses of host memory.
    const AttentionTile* tiles = nullptr;  // [n_tiles]
    std::int32_t n_tiles = 0;
    std::int32_t warps_per_tile = 1;  // Parallel: 1 to 4, of 16 rows each; Folded: kFoldWarps, with tiles of
                                      // fold_rows()
    const AttentionGather* gathers = nullptr;
    const std::int32_t* rows = nullptr;
    // Only the plain kernel reads path_begin and path_rows, the paths of tokens. Otherwise they may be addresses of
    // host memory.
    const std::int32_t* path_begin = nullptr;  // [n_tokens], first entry of each token's path in path_rows, as in
                                               // AttentionArgs
    const std::int32_t* path_rows = nullptr;

    const float* start = nullptr;  // state from which the fold continues, laid out like `state`; null: a fresh state
    float* state = nullptr;        // where the fold goes if `out` is null: planes o, m, l (AttentionArgs::state)
    // Parallel: states of a wave of KV chunks, wave_o [wave][n_queries][head_dim], wave_m and wave_l [n_queries][wave].
    // Between waves the fold is in `running`, laid out like `state` (not used if there is one wave).
    std::int32_t wave_chunks = 0;
    float* wave_o = nullptr;
    float* wave_m = nullptr;
    float* wave_l = nullptr;
    float* running = nullptr;
    ActivationDestination prepare{};  // copy of `out` for matmuls; only for Parallel and a head_dim that is a multiple
                                      // of 32
    // softcap * log2(e); 0: scores are not capped. Last, so that kernels load the other parameters as wide as before.
    float softcap_log2 = 0.0F;
    const float* sinks = nullptr;  // [n_q_heads]; null: none (AttentionArgs::sinks)

    [[nodiscard]] constexpr std::int64_t n_queries() const { return std::int64_t{n_tokens} * n_q_heads; }
};

/// Most warps of a thread block of AttentionWay::Parallel, each with kWarpRows queries.
inline constexpr std::int32_t kMaxParallelWarps = 4;
/// Warps of a thread block of AttentionWay::Folded, each with kWarpRows queries or half of their value columns.
inline constexpr std::int32_t kFoldWarps = 4;

/// Returns the queries of a tile that is folded in registers. With heads of more than 128 two warps share 16 queries
/// and have one half of the columns of the values each.
[[nodiscard]] constexpr std::int32_t fold_rows(std::int32_t head_dim) {
    return kWarpRows * kFoldWarps / (head_dim > 128 ? 2 : 1);
}

/// Enqueues the kernels of a call on `stream`.
void launch_attention(const AttentionLaunch& launch, void* stream);

}  // namespace slipstream::cuda
