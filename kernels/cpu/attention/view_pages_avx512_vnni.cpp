// A view page in AVX-512 VNNI: products of integers, 64 in an instruction. Codes of pages have 4 bits; queries times
// the scales of the keys, and weights times the scales of the values, are rounded to 8. Only drafts read pages, so a
// text stays the same, or under classical speculative sampling its distribution (acceptance: kernels/NOTES.md, "View
// pages").
//
// With [x] for x divided by a factor r and rounded, q . key is computed as
//     r * sum of [q * scale] * code + 8 * (sum of q * scale - r * sum of [q * scale]) + q . minimum:
// so the rounding error of a dimension is multiplied by code - 8 instead of code. Values are added alike. Sums of
// products are exact, so their order does not matter.
#include <cstdint>

#include "kernels/cpu/attention/largest_avx512.h"
#include "kernels/cpu/attention/page_avx512.h"
#include "kernels/cpu/attention/page_step.h"
#include "kernels/cpu/attention/softmax_avx512.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

// The numbers that the largest query and the largest weight become: of queries int8, of weights, which are not
// negative, uint8.
constexpr float kLargestQuery = 127.0F;
constexpr float kLargestWeight = 255.0F;
constexpr float kMiddleCode = 8.0F;
constexpr int kDimensions = 4;  // of K, whose products one instruction adds to a score

[[gnu::always_inline]] inline float factor_of(float most, float code) {
    return most > 0.0F ? code / most : 0.0F;
}

// Returns the lowest four bits of each byte.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline __m512i low_codes(__m512i bytes) {
    return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f));
}

// Returns sum(minimums) + 8 * (sum(numbers) - factor * sum(codes)): what is added to sums of products with codes.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline float rest_of(__m512 minimums, __m512 numbers, __m512i codes,
                                                                   float factor) {
    const __m512 lost = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(factor), numbers);
    return sum_of(_mm512_fmadd_ps(lost, _mm512_set1_ps(kMiddleCode), minimums));
}

/// A rounded query.
struct Query {
    const std::int32_t* codes;  // [head_dim / 4, rounded up]: four dimensions each
    float factor;               // multiplies sums of products with codes
    float rest;                 // what is added to them, from rest_of()
};

// Rounds q * scale of each dimension for each query, into step.scaled_q, `stride` floats apart.
template <int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void round_queries(const PageStep& step, const Page& page,
                                                                        QueryState* const* batch, std::int64_t stride,
                                                                        Query (&queries)[kBatch]) {
    __m512 minimums[kBatch];
    __m512 sum[kBatch];
    __m512i most[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
        minimums[r] = sum[r] = _mm512_setzero_ps();
        most[r] = _mm512_setzero_si512();
    }
    for (std::int64_t d = 0; d < step.head_dim; d += 16) {
        const __mmask16 mask = mask_of(d, step.head_dim);
        const __m512 scale = load_halves(page.k_scales, d, mask);
        const __m512 minimum = load_halves(page.k_minimums, d, mask);
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r) {
            const __m512 query = _mm512_maskz_loadu_ps(mask, batch[r]->q + d);
            const __m512 scaled = _mm512_mul_ps(query, scale);
            _mm512_store_ps(step.scaled_q + r * stride + d, scaled);
            most[r] = larger(most[r], scaled);
            sum[r] = _mm512_add_ps(sum[r], scaled);
            minimums[r] = _mm512_fmadd_ps(query, minimum, minimums[r]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
        float* scaled = step.scaled_q + r * stride;
        // Codes take the place of the floats that were read before.
        auto* codes = reinterpret_cast<std::int8_t*>(scaled);
        const float largest_q = largest(most[r]);
        const __m512 to_code = _mm512_set1_ps(factor_of(largest_q, kLargestQuery));
        __m512i code_sum = _mm512_setzero_si512();
        for (std::int64_t d = 0; d < step.head_dim; d += 16) {
            const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(scaled + d), to_code));
            code_sum = _mm512_add_epi32(code_sum, code);
            _mm_store_si128(reinterpret_cast<__m128i*>(codes + d), _mm512_cvtsepi32_epi8(code));
        }
        const float factor = largest_q / kLargestQuery;
        queries[r] = {reinterpret_cast<const std::int32_t*>(codes), factor,
                      rest_of(minimums[r], sum[r], code_sum, factor)};
    }
}

// Four registers of 16 slots with the codes of four dimensions from `words` on, a byte each. Slots of the registers:
// 16 b + w for b = 0, 1, 2, 3 of w = 0, 4, 1, 5; of w = 8, 12, 9, 13; of 2, 6, 3, 7; of 10, 14, 11, 15.
struct FourDimensions {
    __m512i codes[kScoreVectors];
};
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline FourDimensions four_dimensions(const std::uint32_t* words) {
    const auto* rows = reinterpret_cast<const __m256i*>(words);
    static_assert(kSlotWords * sizeof(std::uint32_t) == sizeof(__m256i));
    const __m256i first = _mm256_loadu_si256(rows);
    const __m256i second = _mm256_loadu_si256(rows + 1);
    const __m256i third = _mm256_loadu_si256(rows + 2);
    const __m256i fourth = _mm256_loadu_si256(rows + 3);
    const __m256i low01 = _mm256_unpacklo_epi8(first, second);
    const __m256i high01 = _mm256_unpackhi_epi8(first, second);
    const __m256i low23 = _mm256_unpacklo_epi8(third, fourth);
    const __m256i high23 = _mm256_unpackhi_epi8(third, fourth);
    const __m512i front = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_unpacklo_epi16(low01, low23)),
                                             _mm256_unpackhi_epi16(low01, low23), 1);
    const __m512i back = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_unpacklo_epi16(high01, high23)),
                                            _mm256_unpackhi_epi16(high01, high23), 1);
    return {{low_codes(front), low_codes(_mm512_srli_epi16(front, 4)), low_codes(back),
             low_codes(_mm512_srli_epi16(back, 4))}};
}

// Writes the sums of 64 slots, which have the order of FourDimensions, in ascending order.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void in_order(const __m512i (&sums)[kScoreVectors],
                                                                   __m512 (&scores)[kScoreVectors]) {
    const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {  // slots 32 i to 32 i + 31
        const __m512i index = _mm512_add_epi32(first, _mm512_set1_epi32(2 * i));
        const __m512i even = _mm512_permutex2var_epi32(sums[0], index, sums[2]);  // 0 to 7, 16 to 23
        const __m512i odd = _mm512_permutex2var_epi32(sums[1], index, sums[3]);   // 8 to 15, 24 to 31
        scores[2 * i] = _mm512_cvtepi32_ps(_mm512_shuffle_i64x2(even, odd, 0x44));
        scores[2 * i + 1] = _mm512_cvtepi32_ps(_mm512_shuffle_i64x2(even, odd, 0xee));
    }
}

/// The rounded weights of a query.
struct Weights {
    alignas(64) std::int32_t codes[2 * kSlotWords];  // of slots 8 g + {0, 2, 4, 6}, and of 8 g + {1, 3, 5, 7}
    float factor;                                    // multiplies sums of products with codes
    float rest;                                      // what is added to them, from rest_of()
    float keep;                                      // factor of the sums so far
};

// Multiplies the weights of a query, [64], by the scales of their slots, and rounds them.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void round_weights(const Page& page, const float* of,
                                                                        Weights& weights) {
    __m512 scaled[kScoreVectors];
    __m512 minimums = _mm512_setzero_ps();
    __m512 sum = _mm512_setzero_ps();
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < kScoreVectors; ++i) {
        const __m512 weight = _mm512_load_ps(of + 16 * i);
        scaled[i] = _mm512_mul_ps(weight, load_halves(page.v_scales, 16 * i, kAllLanes));
        minimums = _mm512_fmadd_ps(weight, load_halves(page.v_minimums, 16 * i, kAllLanes), minimums);
        most = larger(most, scaled[i]);
        sum = _mm512_add_ps(sum, scaled[i]);
    }
    const float largest_weight = largest(most);
    const __m512 to_code = _mm512_set1_ps(factor_of(largest_weight, kLargestWeight));
    __m512i code_sum = _mm512_setzero_si512();
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
#pragma GCC unroll 4
    for (int i = 0; i < kScoreVectors; ++i) {
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(scaled[i], to_code));
        code_sum = _mm512_add_epi32(code_sum, code);
        _mm_store_si128(reinterpret_cast<__m128i*>(weights.codes) + i,
                        _mm_shuffle_epi8(_mm512_cvtusepi32_epi8(code), even_odd));
    }
    weights.factor = largest_weight / kLargestWeight;
    weights.rest = rest_of(minimums, sum, code_sum, weights.factor);
}

// Adds the weighted values of a page in the dimensions [d, d + 16 * kVectors).
template <int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void add_values(const PageStep& step, const Page& page,
                                                                     QueryState* const* batch,
                                                                     const Weights (&weights)[kBatch], std::int64_t d,
                                                                     __mmask16 mask) {
    __m512i sum[kBatch][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_setzero_si512();
    const std::int64_t n_rows = (step.slots.end_slot + kWordCodes - 1) / kWordCodes;
    for (std::int64_t g = 0; g < n_rows; ++g) {
        const std::uint32_t* words = page.v_codes + g * step.head_dim + d;
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            __m512i codes[kVectors];
#pragma GCC unroll 8
            for (int i = 0; i < kVectors; ++i) {
                const __m512i row = _mm512_maskz_loadu_epi32(mask, words + 16 * i);
                codes[i] = low_codes(odd == 0 ? row : _mm512_srli_epi16(row, 4));
            }
#pragma GCC unroll 6
            for (int r = 0; r < kBatch; ++r) {
                const __m512i weight = _mm512_set1_epi32(weights[r].codes[2 * g + odd]);
#pragma GCC unroll 8
                for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_dpbusd_epi32(sum[r][i], weight, codes[i]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
            float* o = batch[r]->o + d + 16 * i;
            const __m512 kept = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, o), _mm512_set1_ps(weights[r].keep),
                                                _mm512_set1_ps(weights[r].rest));
            _mm512_mask_storeu_ps(
                o, mask, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][i]), _mm512_set1_ps(weights[r].factor), kept));
        }
}

template <int kBatch, bool kSoftcap>
SLIPSTREAM_AVX512_VNNI void reduce(const PageStep& step, QueryState* const* batch) {
    const Page page(step.page, step.head_dim);
    Query queries[kBatch];
    round_queries(step, page, batch, (step.head_dim + 15) / 16 * 16, queries);
    __m512i sum[kBatch][kScoreVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kScoreVectors; ++i) sum[r][i] = _mm512_setzero_si512();
    // The last four dimensions may be fewer: their words lie in the page still, and the query's codes are 0 there.
    for (std::int64_t d = 0; d < step.head_dim; d += kDimensions) {
        // A page has about a line for each dimension.
#pragma GCC unroll 4
        for (int i = 0; i < kDimensions; ++i) _mm_prefetch(step.next + 64 * (d + i), _MM_HINT_T0);
        const FourDimensions keys = four_dimensions(page.k_codes + d * kSlotWords);
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r) {
            const __m512i query = _mm512_set1_epi32(queries[r].codes[d / kDimensions]);
#pragma GCC unroll 4
            for (int i = 0; i < kScoreVectors; ++i) sum[r][i] = _mm512_dpbusd_epi32(sum[r][i], keys.codes[i], query);
        }
    }
    Weights weights[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
        __m512 score[kScoreVectors];
        in_order(sum[r], score);
#pragma GCC unroll 4
        for (int i = 0; i < kScoreVectors; ++i)
            score[i] = _mm512_fmadd_ps(score[i], _mm512_set1_ps(queries[r].factor), _mm512_set1_ps(queries[r].rest));
        alignas(64) float of[kPageSlots];
        weights[r].keep = softmax<kSoftcap>(score, step.slots, *batch[r], of);
        round_weights(page, of, weights[r]);
    }
    constexpr int kVectors = kBatch <= 2 ? 8 : 4;
    std::int64_t d = 0;
    for (; d + 16 * kVectors <= step.head_dim; d += 16 * kVectors)
        add_values<kBatch, kVectors>(step, page, batch, weights, d, kAllLanes);
    if constexpr (kVectors > 4)
        for (; d + 64 <= step.head_dim; d += 64) add_values<kBatch, 4>(step, page, batch, weights, d, kAllLanes);
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

void reduce_page_vnni(const PageStep& step, QueryState* const* batch, int n_batch) {
    step.slots.softcap == 0.0F ? reduce_batch<false>(step, batch, n_batch) : reduce_batch<true>(step, batch, n_batch);
}

}  // namespace slipstream::cpu
#endif
