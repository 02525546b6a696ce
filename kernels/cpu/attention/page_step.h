// The inner functions of the ops of view pages, one per kernel variant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_step.h"
#include "kernels/view_pages.h"

namespace slipstream::cpu {

/// Most queries that one call reduces over a page: the vector variants share the codes of a page among them.
inline constexpr int kMaxPageBatch = 6;

/// One step of the fold: a page.
struct PageStep {
    const std::byte* page;  // see page_layout.h
    const std::byte* next;  // the page that is read after this one, which is prefetched meanwhile; `page` if none is
    std::int64_t head_dim;
    AttentionStep slots;  // visible slots, scale and softcap; its other members are not used
    float* scaled_q;      // memory for [kMaxPageBatch][head_dim rounded up to 16] floats, 64-byte aligned
};

/// A function that folds the page into the states of the `n_batch` (1 to kMaxPageBatch) queries of `batch`. The bits of
/// a state depend only on its own query and on the page, not on the other queries.
using ReducePage = void (*)(const PageStep& step, QueryState* const* batch, int n_batch);

void reduce_page_scalar(const PageStep& step, QueryState* const* batch, int n_batch);
void reduce_page_avx2(const PageStep& step, QueryState* const* batch, int n_batch);
void reduce_page_avx512(const PageStep& step, QueryState* const* batch, int n_batch);
/// Rounds queries and weights to 8 bits; step.scaled_q then has the codes of queries.
void reduce_page_vnni(const PageStep& step, QueryState* const* batch, int n_batch);

/// The rows that become a page.
struct PageRows {
    const std::byte* k;  // [head_dim][64], `dtype`: keys of a step, transposed. Q8_0: codes, followed by the scales
    const std::byte* v;  // [64][head_dim], `dtype`: values. Q8_0: codes, followed by the scales
    DType dtype;         // F16, BF16, F32 or Q8_0
    std::int64_t head_dim;
    int n_slots;  // 1 to 64
};
/// A function that writes all bytes of a page. All variants write the same.
using WritePage = void (*)(const PageRows& rows, std::byte* page);

void write_page_scalar(const PageRows& rows, std::byte* page);
void write_page_avx2(const PageRows& rows, std::byte* page);

}  // namespace slipstream::cpu
