// View pages: rows of a KV view in 4 bits, which hold about four times as many tokens as F16 rows of as many bytes.
//
// A page holds 64 slots, keys and values, of one kv head of one layer. Codes are 0 to 15; an element is
// scale * code + minimum, with both in F16:
//   keys    a scale and a minimum for each dimension, over the slots of the page. (Per channel, since keys of some
//           models have dimensions with large constant values: KIVI, Liu et al. 2024, arXiv 2402.02750, section 3.1.)
//   values  a scale and a minimum for each slot, over its dimensions
// How numbers are rounded: base/page_code.h; all that pages hold is finite, whatever the rows are. How a page is laid
// out inside is the backend's business; its size is not.
//
// Attention over pages is the first part of a fold (AttentionPart): every query sees all slots of the pages, and the
// rows after them, which are not in pages, follow as the last part, by attention(). Pages serve draft passes alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

inline constexpr std::int64_t kPageSlots = kStepTokens;  // slots of a view page

/// Returns the bytes of a view page of a layer whose heads have `head_dim` elements: codes of K and V, scales and
/// minimums of the dimensions of K and of the slots of V.
[[nodiscard]] constexpr std::size_t view_page_bytes(std::int64_t head_dim) {
    const auto d = static_cast<std::size_t>(head_dim);
    constexpr auto kSlots = static_cast<std::size_t>(kPageSlots);
    return d * kSlots / 2 + kSlots * ((d + 1) / 2) + 4 * d + 4 * kSlots;
}

/// Which rows become a view page: slots [64 * from_step, 64 * from_step + n_slots) of a kv head.
struct PageFill {
    std::int32_t head = 0;       // kv head
    std::int32_t from_step = 0;  // step of 64 slots, counted from slot 0, so it is in KV chunk from_step / 4
    std::int32_t n_slots = 0;    // 1 to 64
    std::int32_t page = 0;       // number of the page that is written
};

/// Rounds rows to view pages. The bits of a page depend on its rows alone. No page may be written twice.
struct PagesWriteArgs {
    KvLayout shape;  // of the rows that are read; of any KV type
    const std::byte* const* from =
        nullptr;                      // KV chunks by number, device memory; only those that `fills` name are read
    const PageFill* fills = nullptr;  // [n_fills], host memory; unchanged until the stream has passed this point
    std::int64_t n_fills = 0;
    std::byte* pages = nullptr;  // page p is at p * view_page_bytes(shape.head_dim); aligned to four bytes
};
void view_pages_write(ExecRef exec, const PagesWriteArgs& args);

/// The view pages of one kv head: consecutive ones. All but the last are full.
struct PageRange {
    std::int32_t first_page = 0;
    std::int32_t n_slots = 0;  // 0: the head has no page
};

/// The first part of a fold (AttentionPart::First), over view pages.
struct PagesAttentionArgs {
    KvLayout shape;              // n_kv_heads and head_dim
    ConstTensorView q;           // [n_tokens, n_q_heads * head_dim], F32, rotated
    std::int64_t n_q_heads = 0;  // a multiple of n_kv_heads
    const std::byte* pages = nullptr;
    const PageRange* ranges = nullptr;  // [n_kv_heads], device memory: read when the work runs, so that a graph may be
                                        // launched again after it changed
    std::int64_t most_slots = 0;        // no range has more
    float scale = 1.0F;                 // as in AttentionArgs
    float softcap = 0.0F;               // as in AttentionArgs
    ConstTensorView sinks{};            // as in AttentionArgs
    float* state = nullptr;             // the fold, which attention() continues; see AttentionArgs
};
/// Folds the view pages, in ascending order, into a fresh state: in chunks of four pages, each from a fresh state, like
/// KV chunks. The bits for a token do not depend on the other tokens, nor on most_slots. A head without pages leaves
/// the fresh state. CPUs with VNNI round queries and weights to 8 bits.
void view_pages_attention(ExecRef exec, const PagesAttentionArgs& args);

}  // namespace slipstream
