// Attention over a KV cache of committed chunks plus scratch rows, as a left fold over chunks (design: E1).
//
// Committed KV lies in chunks of 256 positions. A chunk of one layer holds, for each kv head, a K part and a V part of
// 256 rows each; how a part is laid out inside is the backend's business (cpu/attention/kv_layout.h, cuda/kv_launch.h).
// Rows of nodes that are not committed lie in scratch, addressed by row number, [n_rows, n_kv_heads] rows.
//
// Order of the reduction, for one query at absolute position p: chunks ascending; each chunk starts from a fresh state
// (m = -inf, l = 0, o = 0) and takes its 256 slots in four steps of 64, slot = position mod 256; then the chunk's state
// is folded into the running one. Slots outside (p - window, p] contribute exactly 0; a step or chunk with no slot
// inside is skipped. A row read from scratch stands in the same slot as it will once committed, so the bits of a
// result do not depend on where the commit point is, nor on what else the pass carries. The running state starts as
// (-inf, 0, 0), or with sinks as (sink of the query head, 1, 0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/base/q8_row.h"
#include "kernels/base/tensor_view.h"
#include "kernels/delta_net.h"
#include "kernels/device.h"
#include "kernels/elementwise.h"

namespace slipstream {

inline constexpr std::int64_t kChunkTokens = 256;  // positions of a KV chunk
inline constexpr std::int64_t kStepTokens = 64;    // slots that the fold takes in one step

/// Layout of the KV of one layer; every KV op takes one.
///
/// A row of a kv head (K or V of one position) has head_dim elements of F16, BF16 or F32. A row of Q8_0 has head_dim
/// 8-bit codes, then a BF16 scale for each block of 32 of them (q8_row.h), both padded to whole words of four bytes.
/// (In files, ggml's Q8_0 keeps an F16 scale before the codes of each block.) In scratch the rows of a position's kv
/// heads follow one another.
struct KvLayout {
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
    DType dtype = DType::F16;  // F16, BF16, F32 or Q8_0: see is_kv_type()
    /// The layer has no attention and no rows (n_kv_heads is 0) but a recurrent state of this shape. Empty: it has KV.
    DeltaNetShape state{};

    /// Whether a row is codes and scales.
    [[nodiscard]] bool has_scales() const { return dtype == DType::Q8_0; }
    /// Bytes of the elements, or codes, of a row of a kv head.
    [[nodiscard]] std::size_t head_code_bytes() const {
        return has_scales() ? static_cast<std::size_t>((head_dim + 3) / 4 * 4) : row_bytes(dtype, head_dim);
    }
    /// Number of scales of a row of a kv head; 0 if the type has none.
    [[nodiscard]] std::int64_t head_scales() const { return has_scales() ? (head_dim + kQ8Block - 1) / kQ8Block : 0; }
    /// Bytes of a row of a kv head, its scales included.
    [[nodiscard]] std::size_t head_row_bytes() const {
        return head_code_bytes() + static_cast<std::size_t>((head_scales() + 1) / 2 * 4);
    }
    /// Bytes of K, or V, of one kv head in a step of 64 slots.
    [[nodiscard]] std::size_t step_bytes() const { return static_cast<std::size_t>(kStepTokens) * head_row_bytes(); }
    /// Bytes of K, or V, of one kv head in one KV chunk.
    [[nodiscard]] std::size_t part_bytes() const { return static_cast<std::size_t>(kChunkTokens) * head_row_bytes(); }
    [[nodiscard]] std::size_t chunk_bytes() const { return 2 * part_bytes() * static_cast<std::size_t>(n_kv_heads); }
    [[nodiscard]] std::size_t scratch_row_bytes() const {
        return static_cast<std::size_t>(n_kv_heads) * head_row_bytes();
    }
    friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

/// Whether KV rows can be stored in this type.
[[nodiscard]] constexpr bool is_kv_type(DType type) {
    return type == DType::F16 || type == DType::BF16 || type == DType::F32 || type == DType::Q8_0;
}
/// Returns the name of a KV type, as messages and statistics write it: "F16", "BF16", "F32", "Q8".
[[nodiscard]] std::string_view kv_type_name(DType type);

/// Rounds the new KV rows of a pass to shape.dtype and stores them in scratch. The bits of a row depend on the row
/// alone.
struct KvWriteArgs {
    KvLayout shape;
    ConstTensorView k;                           // [n_tokens, n_kv_heads * head_dim], F32, rotated
    ConstTensorView v;                           // [n_tokens, n_kv_heads * head_dim], F32
    std::byte* scratch_k = nullptr;              // [n_rows, n_kv_heads] rows of shape.dtype, see KvLayout
    std::byte* scratch_v = nullptr;              // [n_rows, n_kv_heads] rows of shape.dtype
    const std::int32_t* scratch_rows = nullptr;  // [n_tokens]: the scratch row that each token's K and V go to
};
void kv_write(ExecRef exec, const KvWriteArgs& args);

/// Rotates q in place, and k on its way to scratch, and stores v there. The bits are those of rms_norm() of each head
/// of q and of k (if there are weights for it), rope() of both, then kv_write(). If a device has one kernel for all of
/// these, k crosses memory once and two to four launches are saved.
struct RotateWriteArgs {
    KvLayout shape;
    TensorView q;                                // [n_tokens, n_q_heads * head_dim], F32: rotated in place
    TensorView k;                                // [n_tokens, n_kv_heads * head_dim], F32; undefined afterwards
    ConstTensorView v;                           // [n_tokens, n_kv_heads * head_dim], F32
    ConstTensorView cos_sin;                     // [n_tokens, n_rotated], F32, from rope_table()
    RopeLayout layout = RopeLayout::Half;        //
    std::byte* scratch_k = nullptr;              // scratch rows for K, as in KvWriteArgs
    std::byte* scratch_v = nullptr;              //
    const std::int32_t* scratch_rows = nullptr;  //
    ConstTensorView q_cos_sin{};                 // like cos_sin, for queries; empty: cos_sin rotates queries too
    ConstTensorView q_norm{};  // [head_dim], F32, or empty; normed rows are (token, head), following one another
    ConstTensorView k_norm{};  // [head_dim], F32, or empty; both norms are given, or none
    float eps = 1e-5F;         // added to the mean square in the norms
};
void rotate_write(ExecRef exec, const RotateWriteArgs& args);

/// Copies scratch rows to committed positions: row scratch_rows[i] goes to position first_position + i, in one layer,
/// or equally in several layers.
struct KvCommitArgs {
    KvLayout shape;
    const std::byte* scratch_k = nullptr;
    const std::byte* scratch_v = nullptr;
    const std::int32_t* scratch_rows = nullptr;  // [n_rows]
    std::int64_t n_rows = 0;
    std::int64_t first_position = 0;
    std::byte* const* chunks = nullptr;  // KV chunks of the layer by number, [(first_position + n_rows - 1) / 256 + 1]
    std::int64_t n_layers = 1;
    std::size_t layer_bytes = 0;    // bytes from scratch_k (scratch_v) of a layer to that of the next
    std::int64_t layer_chunks = 0;  // entries of `chunks` from the first of a layer to the first of the next
};
void kv_commit(ExecRef exec, const KvCommitArgs& args);

inline constexpr std::int64_t kAllChunks = std::numeric_limits<std::int64_t>::max();

/// The part of a fold that a call computes.
enum class AttentionPart : std::uint8_t {
    Whole,   // starts from a fresh state, writes `out`
    First,   // starts from a fresh state, leaves the fold in `state`
    Middle,  // continues from `state`, leaves the fold there
    Last,    // continues from `state`, writes `out`
};

struct AttentionArgs {
    KvLayout shape;
    ConstTensorView q;                         // [n_tokens, n_q_heads * head_dim], F32, rotated
    TensorView out;                            // [n_tokens, n_q_heads * head_dim], F32
    std::int64_t n_q_heads = 0;                // a multiple of n_kv_heads
    const std::int32_t* positions = nullptr;   // [n_tokens], absolute, >= n_committed
    const std::byte* const* chunks = nullptr;  // committed KV chunks of this layer, [ceil(n_committed / 256)]
    std::int64_t n_committed = 0;              // positions [0, n_committed) are in `chunks`
    const std::byte* scratch_k = nullptr;
    const std::byte* scratch_v = nullptr;
    // After the committed positions, token t attends to the scratch rows from path_rows[path_begin[t]] on: one for each
    // position from n_committed to positions[t], its own row last.
    const std::int32_t* path_begin = nullptr;  // [n_tokens]
    const std::int32_t* path_rows = nullptr;
    float scale = 1.0F;       // multiplies q . k
    float softcap = 0.0F;     // above 0: a score s = scale * q . k becomes softcap * tanh(s / softcap), before mask and
                              // softmax (Gemma 2: 50); 0: scores are not capped
    std::int64_t window = 0;  // sliding window: a query sees the last `window` positions, its own included; 0 = all
    // A logit of each query head that joins the maximum and the denominator of its softmax and has no value:
    // [n_q_heads], F32, memory of the device; empty: none.
    ConstTensorView sinks{};
    // Part of the fold, for KV that arrives in segments: only KV chunks [first_chunk, end_chunk), committed or not, are
    // folded; other entries of `chunks` are not read. Parts in ascending order without gaps give the bits of one whole
    // call. The range of a part may be empty. `out` is not accessed before the last part.
    std::int64_t first_chunk = 0;
    std::int64_t end_chunk = kAllChunks;
    AttentionPart part = AttentionPart::Whole;
    // The fold so far, unless part is Whole: attention_state_floats(...) floats of device memory, which nothing else
    // may change between parts: o [n_tokens, n_q_heads, head_dim], m [n_tokens, n_q_heads], l [n_tokens, n_q_heads].
    float* state = nullptr;
    NextWeights next{};  // types of the weights that `out` is multiplied by
};
/// Computes attention, or a part of its fold, in stream order. Each token must see at least one position in the parts
/// together; a whole call CHECKs that.
void attention(ExecRef exec, const AttentionArgs& args);

/// Returns the number of floats in the state of a fold: o, m and l of each query.
[[nodiscard]] std::size_t attention_state_floats(std::int64_t n_tokens, std::int64_t n_q_heads, std::int64_t head_dim);

}  // namespace slipstream
