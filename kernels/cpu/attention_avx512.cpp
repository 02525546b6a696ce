// An attention step in AVX-512. Scores: 64 slots in four registers a query, dimensions in ascending order. Values:
// blocks of 64 dimensions in four registers a query, slots in ascending order. Up to four queries share each load and
// widening.
#include "kernels/cpu/attention_step.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

// Elements [index, index + 16) of `base`, those past the mask as 0.
template <DType kType>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 load16(const std::byte* base, std::int64_t index,
                                                              __mmask16 mask) {
    if constexpr (kType == DType::F32) {
        return _mm512_maskz_loadu_ps(mask, reinterpret_cast<const float*>(base) + index);
    } else {
        const __m256i bits = _mm256_maskz_loadu_epi16(mask, reinterpret_cast<const std::uint16_t*>(base) + index);
        if constexpr (kType == DType::F16) return _mm512_cvtph_ps(bits);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
}

constexpr __mmask16 kAll = 0xffff;

// o[d .. d + 16 * kVectors) of each query: scaled by keep, then one slot after the other added.
template <DType kType, int kBatch, int kVectors>
SLIPSTREAM_AVX512 void add_values(const AttentionStep& step, QueryState* const* batch,
                                  const float (&weights)[kMaxBatch][kStepTokens], const float (&keep)[kMaxBatch],
                                  std::int64_t d, __mmask16 mask) {
    __m512 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i)
            sum[r][i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, batch[r]->o + d + 16 * i), _mm512_set1_ps(keep[r]));
    for (int j = step.first_slot; j < step.end_slot; ++j) {
        __m512 value[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) value[i] = load16<kType>(step.v, j * step.head_dim + d + 16 * i, mask);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m512 weight = _mm512_set1_ps(weights[r][j]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_fmadd_ps(weight, value[i], sum[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) _mm512_mask_storeu_ps(batch[r]->o + d + 16 * i, mask, sum[r][i]);
}

template <DType kType, int kBatch>
SLIPSTREAM_AVX512 void reduce(const AttentionStep& step, QueryState* const* batch) {
    constexpr int kVectors = kStepTokens / 16;
    __m512 score[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) score[r][i] = _mm512_setzero_ps();
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
        __m512 key[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) key[i] = load16<kType>(step.k, d * kStepTokens + 16 * i, kAll);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m512 q = _mm512_set1_ps(batch[r]->q[d]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) score[r][i] = _mm512_fmadd_ps(q, key[i], score[r][i]);
        }
    }
    alignas(64) float weights[kMaxBatch][kStepTokens];
    float keep[kMaxBatch];
    for (int r = 0; r < kBatch; ++r) {
        for (int i = 0; i < kVectors; ++i) _mm512_store_ps(weights[r] + 16 * i, score[r][i]);
        keep[r] = softmax_step(weights[r], step, *batch[r]);
    }
    std::int64_t d = 0;
    for (; d + 64 <= step.head_dim; d += 64) add_values<kType, kBatch, 4>(step, batch, weights, keep, d, kAll);
    for (; d + 16 <= step.head_dim; d += 16) add_values<kType, kBatch, 1>(step, batch, weights, keep, d, kAll);
    if (d < step.head_dim)
        add_values<kType, kBatch, 1>(step, batch, weights, keep, d,
                                     static_cast<__mmask16>((1U << (step.head_dim - d)) - 1U));
}

template <DType kType>
SLIPSTREAM_AVX512 void reduce_any(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    switch (n_batch) {
        case 1:
            reduce<kType, 1>(step, batch);
            break;
        case 2:
            reduce<kType, 2>(step, batch);
            break;
        case 3:
            reduce<kType, 3>(step, batch);
            break;
        default:
            reduce<kType, 4>(step, batch);
            break;
    }
}

}  // namespace

void reduce_step_avx512(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    switch (step.dtype) {
        case DType::F32:
            reduce_any<DType::F32>(step, batch, n_batch);
            break;
        case DType::F16:
            reduce_any<DType::F16>(step, batch, n_batch);
            break;
        default:
            reduce_any<DType::BF16>(step, batch, n_batch);
            break;
    }
}

}  // namespace slipstream::cpu
#endif
