// Parameters of the kernels that write rows of the KV cache. On a GPU both parts of a KV chunk are plain rows,
// [n_kv_heads][K|V][256][head_dim]; scratch rows are [n_kv_heads][head_dim]. All pointers are to device memory.
//
// In Q8 a part is [4 steps]{[64 slots] codes of a row, [64 slots] scales of a row}, so that rows of codes begin at
// multiples of their size; in scratch a head's scales follow its codes. Sizes: q8_rows.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/elementwise_launch.h"

namespace slipstream::cuda {

/// Rounds the K and V rows of a pass to `type` and stores them in scratch.
struct KvWriteLaunch {
    KvType type = KvType::F16;
    std::int32_t n_tokens = 0;
    std::int32_t row_elements = 0;  // n_kv_heads * head_dim
    std::int32_t head_dim = 0;
    const float* k = nullptr;  // [n_tokens, row_elements], rows k_stride floats apart
    std::int64_t k_stride = 0;
    const float* v = nullptr;  // [n_tokens, row_elements], rows v_stride floats apart
    std::int64_t v_stride = 0;
    std::byte* scratch_k = nullptr;  // [n_rows, row_elements], `type`; Q8: [n_rows, n_kv_heads] rows
    std::byte* scratch_v = nullptr;
    const std::int32_t* scratch_rows = nullptr;  // [n_tokens]: scratch row of each token's K and V
};
void launch_kv_write(const KvWriteLaunch& launch, void* stream);

/// Rotates queries in place, and keys on their way to scratch; stores values as they are. Optionally norms the heads of
/// queries and keys first.
struct RotateWriteLaunch {
    KvWriteLaunch write{};  // write.k is not rotated yet, and is not changed
    std::int32_t n_q_heads = 0;
    std::int32_t n_rotated = 0;
    RopePairs pairs = RopePairs::Half;
    float* q = nullptr;  // [n_tokens, n_q_heads * head_dim]
    std::int64_t q_stride = 0;
    const float* cos_sin = nullptr;  // [n_tokens, n_rotated]
    std::int64_t cos_sin_stride = 0;
    const float* q_cos_sin = nullptr;  // [n_tokens, n_rotated]: angles of queries
    std::int64_t q_cos_sin_stride = 0;
    const float* q_norm = nullptr;  // [head_dim]; both norms are given, or none: heads are then normed first, as
                                    // rms_norm does
    const float* k_norm = nullptr;
    float eps = 1e-5F;
};
void launch_rotate_write(const RotateWriteLaunch& launch, void* stream);

/// Copies scratch rows to committed positions, in one layer or in several. Works on words of four bytes, so a head must
/// have an even number of 16-bit elements.
struct KvCommitLaunch {
    std::int32_t n_rows = 0;
    std::int32_t n_kv_heads = 0;
    std::int32_t head_words = 0;                 // words of four bytes in a head's row, scales included
    std::int32_t scale_words = 0;                // the last words of a head's row, its scales; 0: it has none
    const std::byte* scratch_k = nullptr;        // [n_rows of scratch, n_kv_heads, head_words], of the first layer
    const std::byte* scratch_v = nullptr;        //
    const std::int32_t* scratch_rows = nullptr;  // [n_rows]: scratch row scratch_rows[i] goes to position
                                                 // first_position + i
    std::int64_t first_position = 0;
    std::byte* const* chunks = nullptr;  // [n_layers, n_chunks]; the first of a layer is number first_position / 256
    std::int32_t n_chunks = 0;
    std::int32_t n_layers = 1;
    std::int64_t layer_bytes = 0;  // bytes of scratch from one layer to the next
};
void launch_kv_commit(const KvCommitLaunch& launch, void* stream);

/// Copies row src_rows[i] to row dst_rows[i], in each plane; strides are words of four bytes.
struct MoveRowsLaunch {
    std::int32_t n_rows = 0;
    std::int32_t n_planes = 0;
    std::int32_t row_words = 0;
    const std::byte* src = nullptr;
    std::int64_t src_plane_words = 0;
    std::byte* dst = nullptr;
    std::int64_t dst_plane_words = 0;
    const std::int32_t* src_rows = nullptr;  // [n_rows]
    const std::int32_t* dst_rows = nullptr;  // [n_rows]
};
void launch_move_rows(const MoveRowsLaunch& launch, void* stream);

}  // namespace slipstream::cuda
