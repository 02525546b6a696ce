// A view page in AVX-512, for CPUs without VNNI. Scores: 64 slots in four registers per query, dimensions in ascending
// order. Values: slots in ascending order, in blocks of dimensions that leave registers for all queries. Up to six
// queries share the codes.
//
// A key is scale * code + minimum with both of its dimension, so q . key = sum of (q * scale) * code + q . minimum; a
// value has both of its slot, so its weight is multiplied by the scale, and the sum of weight * minimum is common to
// all dimensions. No key and no value is computed.
#include "kernels/cpu/attention/page_avx512.h"
#include "kernels/cpu/attention/page_step.h"
#include "kernels/cpu/attention/softmax_avx512.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

// Returns the codes in the lowest four bits of 16 words as floats.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 codes_of(__m512i words) {
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(words, numbers);  // of an index, only the lowest four bits count
}

// Writes q * scale of each dimension to step.scaled_q for each query, `stride` floats apart, and q . minimum to
// `of_minimums`.
template <int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void scale_queries(const PageStep& step, const Page& page,
                                                                   QueryState* const* batch, std::int64_t stride,
                                                                   float (&of_minimums)[kBatch]) {
    __m512 sum[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) sum[r] = _mm512_setzero_ps();
    for (std::int64_t d = 0; d < step.head_dim; d += 16) {
        const __mmask16 mask = mask_of(d, step.head_dim);
        const __m512 scale = load_halves(page.k_scales, d, mask);
        const __m512 minimum = load_halves(page.k_minimums, d, mask);
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r) {
            const __m512 query = _mm512_maskz_loadu_ps(mask, batch[r]->q + d);
            _mm512_store_ps(step.scaled_q + r * stride + d, _mm512_mul_ps(query, scale));
            sum[r] = _mm512_fmadd_ps(query, minimum, sum[r]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) of_minimums[r] = sum_of(sum[r]);
}

// Multiplies the weights of a query, [64], by the scales of their slots; returns the sum of weight * minimum.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline float scale_weights(const Page& page, float* weights) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t j = 0; j < kPageSlots; j += 16) {
        const __m512 weight = _mm512_load_ps(weights + j);
        _mm512_store_ps(weights + j, _mm512_mul_ps(weight, load_halves(page.v_scales, j, kAllLanes)));
        sum = _mm512_fmadd_ps(weight, load_halves(page.v_minimums, j, kAllLanes), sum);
    }
    return sum_of(sum);
}

/// The weights of a query.
struct Weights {
    alignas(64) float scaled[kPageSlots];
    float keep;     // factor of the sums so far
    float minimum;  // what is added to them
};

// Adds the weighted values of a page in the dimensions [d, d + 16 * kVectors), one slot after the other.
template <int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void add_values(const PageStep& step, const Page& page,
                                                                QueryState* const* batch,
                                                                const Weights (&weights)[kBatch], std::int64_t d,
                                                                __mmask16 mask) {
    __m512 sum[kBatch][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
            sum[r][i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, batch[r]->o + d + 16 * i),
                                        _mm512_set1_ps(weights[r].keep), _mm512_set1_ps(weights[r].minimum));
    for (std::int64_t j = 0; j < step.slots.end_slot; j += kWordCodes) {
        __m512i words[kVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
            words[i] = _mm512_maskz_loadu_epi32(mask, page.v_codes + j / kWordCodes * step.head_dim + d + 16 * i);
#pragma GCC unroll 8
        for (int n = 0; n < kWordCodes; ++n) {
#pragma GCC unroll 8
            for (int i = 0; i < kVectors; ++i) {
                const __m512 code = codes_of(words[i]);
#pragma GCC unroll 6
                for (int r = 0; r < kBatch; ++r)
                    sum[r][i] = _mm512_fmadd_ps(_mm512_set1_ps(weights[r].scaled[j + n]), code, sum[r][i]);
                words[i] = _mm512_srli_epi32(words[i], 4);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) _mm512_mask_storeu_ps(batch[r]->o + d + 16 * i, mask, sum[r][i]);
}

template <int kBatch, bool kSoftcap>
SLIPSTREAM_AVX512 void reduce(const PageStep& step, QueryState* const* batch) {
    const Page page(step.page, step.head_dim);
    const std::int64_t stride = (step.head_dim + 15) / 16 * 16;
    float of_minimums[kBatch];
    scale_queries(step, page, batch, stride, of_minimums);
    __m512 score[kBatch][kScoreVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kScoreVectors; ++i) score[r][i] = _mm512_setzero_ps();
    // Word i of a dimension has the slots i + 8 n: lanes 0 to 7 take n = 0, 2, ..., lanes 8 to 15 n = 1, 3, ...
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
        // A page has about a line for each dimension.
        _mm_prefetch(step.next + 64 * d, _MM_HINT_T0);
        __m512i words =
            _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(page.k_codes + d * kSlotWords)));
        words = _mm512_srlv_epi32(words, shift);
#pragma GCC unroll 4
        for (int i = 0; i < kScoreVectors; ++i) {
            const __m512 code = codes_of(words);
            words = _mm512_srli_epi32(words, 8);
#pragma GCC unroll 6
            for (int r = 0; r < kBatch; ++r)
                score[r][i] = _mm512_fmadd_ps(_mm512_set1_ps(step.scaled_q[r * stride + d]), code, score[r][i]);
        }
    }
    Weights weights[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kScoreVectors; ++i)
            score[r][i] = _mm512_add_ps(score[r][i], _mm512_set1_ps(of_minimums[r]));
        weights[r].keep = softmax<kSoftcap>(score[r], step.slots, *batch[r], weights[r].scaled);
        weights[r].minimum = scale_weights(page, weights[r].scaled);
    }
    constexpr int kVectors = kBatch == 1 ? 8 : kBatch <= 4 ? 4 : 2;
    std::int64_t d = 0;
    for (; d + 16 * kVectors <= step.head_dim; d += 16 * kVectors)
        add_values<kBatch, kVectors>(step, page, batch, weights, d, kAllLanes);
    if constexpr (kVectors > 2)
        for (; d + 32 <= step.head_dim; d += 32) add_values<kBatch, 2>(step, page, batch, weights, d, kAllLanes);
    for (; d < step.head_dim; d += 16) add_values<kBatch, 1>(step, page, batch, weights, d, mask_of(d, step.head_dim));
}

template <bool kSoftcap>
void reduce_batch(const PageStep& step, QueryState* const* batch, int n_batch) {
    using Reduce = void (*)(const PageStep& step, QueryState* const* batch);
    static constexpr Reduce kReduce[kMaxPageBatch] = {reduce<1, kSoftcap>, reduce<2, kSoftcap>, reduce<3, kSoftcap>,
                                                      reduce<4, kSoftcap>, reduce<5, kSoftcap>, reduce<6, kSoftcap>};
    kReduce[n_batch - 1](step, batch);
}

}  // namespace

void reduce_page_avx512(const PageStep& step, QueryState* const* batch, int n_batch) {
    step.slots.softcap == 0.0F ? reduce_batch<false>(step, batch, n_batch) : reduce_batch<true>(step, batch, n_batch);
}

}  // namespace slipstream::cpu
#endif
