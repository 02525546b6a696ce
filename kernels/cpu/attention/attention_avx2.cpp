// An attention step in AVX2. Scores: 32 slots in four registers per query, twice; dimensions in ascending order.
// Values: blocks of 32 dimensions in four registers per query, slots in ascending order. Up to two queries share each
// load and widening. Of Q8_0, products of 32 dimensions are summed and then scaled; values are multiplied by scaled
// weights.
#include <cmath>
#include <cstring>

#include "kernels/base/float16.h"
#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

// Prefetches cache lines of `count` elements from `index` on: of `next`, the next step, into L2; and of `now`, the step
// being read, kStepL1PrefetchBytes further on, into L1. Does nothing for F32: such rows usually are rows that were
// widened, which are in L1.
template <DType kType, std::int64_t count>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void fetch_ahead(const std::byte* now, const std::byte* next,
                                                               std::int64_t index) {
    if constexpr (kType == DType::F32) return;
    constexpr std::int64_t kBytes = kKvElementBytes<kType>;
#pragma GCC unroll 4
    for (std::int64_t byte = 0; byte < kBytes * count; byte += 64) {
        _mm_prefetch(next + kBytes * index + byte, _MM_HINT_T1);
        _mm_prefetch(now + kBytes * index + kStepL1PrefetchBytes + byte, _MM_HINT_T0);
    }
}

constexpr int kPair = 2;

template <DType kType>
float load1(const std::byte* base, std::int64_t index) {
    if constexpr (kType == DType::F32) return reinterpret_cast<const float*>(base)[index];
    if constexpr (kType == DType::F16) return to_float(reinterpret_cast<const Half*>(base)[index]);
    if constexpr (kType == DType::Q8_0) return reinterpret_cast<const std::int8_t*>(base)[index];
    return to_float(reinterpret_cast<const BFloat16*>(base)[index]);
}

// Returns the scales of eight slots as floats.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 load_scales(const std::uint16_t* scales) {
    return load8<DType::BF16>(reinterpret_cast<const std::byte*>(scales), 0);
}

// Computes the weights for values of Q8_0 in the block of 32 dimensions that begins with d: each weight is multiplied
// by the scale of its slot in that block.
template <int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void scale_weights(const AttentionStep& step,
                                                                 const float (&weights)[kPair][kStepTokens],
                                                                 std::int64_t d, float (&scaled)[kPair][kStepTokens]) {
    const std::uint16_t* scales = step_scales(step.v, step.head_dim) + d / kQ8Block * kStepTokens;
    for (int r = 0; r < kBatch; ++r)
        for (int j = 0; j < kStepTokens; j += 8)
            _mm256_store_ps(scaled[r] + j, _mm256_mul_ps(_mm256_load_ps(weights[r] + j), load_scales(scales + j)));
}

template <DType kType, int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_values(const AttentionStep& step, QueryState* const* batch,
                                                              const float (&weights)[kPair][kStepTokens],
                                                              const float (&keep)[kPair], std::int64_t d) {
    __m256 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i)
            sum[r][i] = _mm256_mul_ps(_mm256_loadu_ps(batch[r]->o + d + 8 * i), _mm256_set1_ps(keep[r]));
    for (int j = step.first_slot; j < step.end_slot; ++j) {
        fetch_ahead<kType, 8 * kVectors>(step.v, step.next_v, j * step.head_dim + d);
        __m256 value[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) value[i] = load8<kType>(step.v, j * step.head_dim + d + 8 * i);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m256 weight = _mm256_set1_ps(weights[r][j]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm256_fmadd_ps(weight, value[i], sum[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) _mm256_storeu_ps(batch[r]->o + d + 8 * i, sum[r][i]);
}

// Adds the weighted values of the last head_dim mod 8 dimensions, from d on, to o of each query: one by one, in the
// same order and with the same fused operation as add_values().
template <DType kType, int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_value_tail(const AttentionStep& step, QueryState* const* batch,
                                                                  const float (&weights)[kPair][kStepTokens],
                                                                  const float (&keep)[kPair], std::int64_t d) {
    for (; d < step.head_dim; ++d) {
        for (int r = 0; r < kBatch; ++r) {
            float sum = batch[r]->o[d] * keep[r];
            for (int j = step.first_slot; j < step.end_slot; ++j)
                sum = std::fma(weights[r][j], load1<kType>(step.v, j * step.head_dim + d), sum);
            batch[r]->o[d] = sum;
        }
    }
}

// Adds q . k over the dimensions [first, end) to the products of 8 * kVectors slots, from slot `half` on.
template <DType kType, int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_products(const AttentionStep& step, QueryState* const* batch,
                                                                int half, std::int64_t first, std::int64_t end,
                                                                __m256 (&product)[kBatch][kVectors]) {
    for (std::int64_t d = first; d < end; ++d) {
        fetch_ahead<kType, 8 * kVectors>(step.k, step.next_k, d * kStepTokens + half);
        __m256 key[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) key[i] = load8<kType>(step.k, d * kStepTokens + half + 8 * i);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m256 q = _mm256_set1_ps(batch[r]->q[d]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) product[r][i] = _mm256_fmadd_ps(q, key[i], product[r][i]);
        }
    }
}

// Adds q . k over all dimensions to the scores of 8 * kVectors slots, from slot `half` on, for Q8_0: a block's products
// are summed from 0 and added times its scale.
template <int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_blocks(const AttentionStep& step, QueryState* const* batch,
                                                              int half, __m256 (&score)[kBatch][kVectors]) {
    const std::uint16_t* scales = step_scales(step.k, step.head_dim) + half;
    for (std::int64_t d = 0; d < step.head_dim; d += kQ8Block, scales += kStepTokens) {
        __m256 product[kBatch][kVectors];
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) product[r][i] = _mm256_setzero_ps();
        const std::int64_t end = d + kQ8Block < step.head_dim ? d + kQ8Block : step.head_dim;
        add_products<DType::Q8_0>(step, batch, half, d, end, product);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i)
                score[r][i] = _mm256_fmadd_ps(product[r][i], load_scales(scales + 8 * i), score[r][i]);
    }
}

template <DType kType, int kBatch, bool kSoftcap>
SLIPSTREAM_AVX2 void reduce(const AttentionStep& step, QueryState* const* batch) {
    constexpr int kVectors = 4;
    alignas(32) float weights[kPair][kStepTokens];
    for (int half = 0; half < kStepTokens; half += 8 * kVectors) {
        __m256 score[kBatch][kVectors];
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) score[r][i] = _mm256_setzero_ps();
        if constexpr (kType == DType::Q8_0)
            add_blocks<kBatch, kVectors>(step, batch, half, score);
        else
            add_products<kType, kBatch, kVectors>(step, batch, half, 0, step.head_dim, score);
        for (int r = 0; r < kBatch; ++r)
            for (int i = 0; i < kVectors; ++i) _mm256_store_ps(weights[r] + half + 8 * i, score[r][i]);
    }
    float keep[kPair];
    for (int r = 0; r < kBatch; ++r) keep[r] = softmax_step<kSoftcap>(weights[r], step, *batch[r]);
    std::int64_t d = 0;
    if constexpr (kType == DType::Q8_0) {
        alignas(32) float scaled[kPair][kStepTokens];
        for (; d + 32 <= step.head_dim; d += 32) {
            scale_weights<kBatch>(step, weights, d, scaled);
            add_values<kType, kBatch, 4>(step, batch, scaled, keep, d);
        }
        if (d < step.head_dim) scale_weights<kBatch>(step, weights, d, scaled);  // scaled weights for the last block
        for (; d + 8 <= step.head_dim; d += 8) add_values<kType, kBatch, 1>(step, batch, scaled, keep, d);
        add_value_tail<kType, kBatch>(step, batch, scaled, keep, d);
        return;
    }
    for (; d + 32 <= step.head_dim; d += 32) add_values<kType, kBatch, 4>(step, batch, weights, keep, d);
    for (; d + 8 <= step.head_dim; d += 8) add_values<kType, kBatch, 1>(step, batch, weights, keep, d);
    add_value_tail<kType, kBatch>(step, batch, weights, keep, d);
}

template <DType kType, bool kSoftcap>
SLIPSTREAM_AVX2 void reduce_batches(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    int i = 0;
    for (; i + kPair <= n_batch; i += kPair) reduce<kType, kPair, kSoftcap>(step, batch + i);
    if (i < n_batch) reduce<kType, 1, kSoftcap>(step, batch + i);
}

// Folds a step into the states of n_batch queries. Kernels without a softcap are compiled apart, so that they have no
// instruction more.
template <DType kType>
SLIPSTREAM_AVX2 void reduce_any(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    step.softcap == 0.0F ? reduce_batches<kType, false>(step, batch, n_batch)
                         : reduce_batches<kType, true>(step, batch, n_batch);
}

template <DType kType>
SLIPSTREAM_AVX2 void widen(const std::byte* src, const std::byte* next, float* dst, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 8) {
        fetch_ahead<kType, 8>(src, next, i);
        _mm256_storeu_ps(dst + i, load8<kType>(src, i));
    }
}

}  // namespace

void widen_step_avx2(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n) {
    type == DType::F16 ? widen<DType::F16>(src, next, dst, n) : widen<DType::BF16>(src, next, dst, n);
}

void reduce_step_avx2(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    switch (step.dtype) {
        case DType::F32:
            reduce_any<DType::F32>(step, batch, n_batch);
            break;
        case DType::F16:
            reduce_any<DType::F16>(step, batch, n_batch);
            break;
        case DType::BF16:
            reduce_any<DType::BF16>(step, batch, n_batch);
            break;
        default:
            reduce_any<DType::Q8_0>(step, batch, n_batch);
            break;
    }
}

}  // namespace slipstream::cpu
#endif
