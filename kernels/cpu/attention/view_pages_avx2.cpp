// A view page in AVX2: rows are rounded to a page, and a page is folded. The fold multiplies as the AVX-512 variant
// does (view_pages_avx512.cpp). A code is not moved to the low end of its word: code * 16^n becomes a float, and the
// factor 16^-n, which is exact, goes into sums of scores, or into weights.
//
// Scores: 8 slots in a register; up to four queries share the codes. Values: slots in ascending order, in blocks of
// dimensions that leave registers for all queries.
#include <cstring>

#include "kernels/base/page_code.h"
#include "kernels/cpu/attention/page_layout.h"
#include "kernels/cpu/attention/page_step.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

constexpr int kMaxShared = 4;  // most queries that share the codes
constexpr int kWords = static_cast<int>(kSlotWords);

using Page = PageParts<const std::byte>;

// Returns 8 halves as floats.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 load_halves(const Half* halves, std::int64_t at) {
    return load8<DType::F16>(reinterpret_cast<const std::byte*>(halves), at);
}

// Returns the codes n (0 to 7) of 8 words as floats, times factor_of(n).
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 codes_of(__m256i words, int n) {
    if (n == 7) return _mm256_cvtepi32_ps(_mm256_srli_epi32(words, 28));  // in its place it would be a sign
    return _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xf << (4 * n))));
}
// Returns what codes_of() multiplies the codes n by, inverted.
[[gnu::always_inline]] constexpr float unscale_of(int n) {
    return n == 7 ? 1.0F : 1.0F / static_cast<float>(1 << (4 * n));
}

// Returns the sum of 8 floats, in an order of its own.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline float sum_of(__m256 x) {
    const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
    return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
}

// Writes q * scale of each dimension to `scaled`; returns q . minimum.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline float scale_query(const Page& page, std::int64_t head_dim, const float* q,
                                                                float* scaled) {
    __m256 sum = _mm256_setzero_ps();
    std::int64_t d = 0;
    for (; d + 8 <= head_dim; d += 8) {
        const __m256 query = _mm256_loadu_ps(q + d);
        _mm256_storeu_ps(scaled + d, _mm256_mul_ps(query, load_halves(page.k_scales, d)));
        sum = _mm256_fmadd_ps(query, load_halves(page.k_minimums, d), sum);
    }
    float total = sum_of(sum);
    for (; d < head_dim; ++d) {
        scaled[d] = q[d] * to_float(page.k_scales[d]);
        total += q[d] * to_float(page.k_minimums[d]);
    }
    return total;
}

/// The weights of a query.
struct Weights {
    alignas(32) float scaled[kPageSlots];
    float keep;     // factor of the sums so far
    float minimum;  // what is added to them
};

// Multiplies the weights of a query by the scales of their slots, and by unscale_of() of their place in a word.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void scale_weights(const Page& page, Weights& weights) {
    const __m256 unscale = _mm256_setr_ps(unscale_of(0), unscale_of(1), unscale_of(2), unscale_of(3), unscale_of(4),
                                          unscale_of(5), unscale_of(6), unscale_of(7));
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t j = 0; j < kPageSlots; j += 8) {
        const __m256 weight = _mm256_load_ps(weights.scaled + j);
        _mm256_store_ps(weights.scaled + j,
                        _mm256_mul_ps(_mm256_mul_ps(weight, load_halves(page.v_scales, j)), unscale));
        sum = _mm256_fmadd_ps(weight, load_halves(page.v_minimums, j), sum);
    }
    weights.minimum = sum_of(sum);
}

// Computes q . key of each slot, [64], without the part of the minimums. kVectors registers per query take the slots
// from 8 * first on.
template <int kBatch, int kVectors, int kFirst>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_products(const PageStep& step, const Page& page,
                                                                std::int64_t stride, Weights (&weights)[kBatch]) {
    __m256 score[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) score[r][i] = _mm256_setzero_ps();
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(page.k_codes + d * kSlotWords));
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
            const __m256 code = codes_of(words, kFirst + i);
#pragma GCC unroll 4
            for (int r = 0; r < kBatch; ++r)
                score[r][i] = _mm256_fmadd_ps(_mm256_set1_ps(step.scaled_q[r * stride + d]), code, score[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
            _mm256_store_ps(weights[r].scaled + 8 * (kFirst + i),
                            _mm256_mul_ps(score[r][i], _mm256_set1_ps(unscale_of(kFirst + i))));
}
template <int kBatch, int kVectors, int kFirst = 0>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_all_products(const PageStep& step, const Page& page,
                                                                    std::int64_t stride, Weights (&weights)[kBatch]) {
    add_products<kBatch, kVectors, kFirst>(step, page, stride, weights);
    if constexpr (kFirst + kVectors < kWords)
        add_all_products<kBatch, kVectors, kFirst + kVectors>(step, page, stride, weights);
}

// Adds the weighted values of a page in the dimensions [d, d + 8 * kVectors), one slot after the other.
template <int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline void add_values(const PageStep& step, const Page& page,
                                                              QueryState* const* batch,
                                                              const Weights (&weights)[kBatch], std::int64_t d) {
    __m256 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
            sum[r][i] = _mm256_fmadd_ps(_mm256_loadu_ps(batch[r]->o + d + 8 * i), _mm256_set1_ps(weights[r].keep),
                                        _mm256_set1_ps(weights[r].minimum));
    for (std::int64_t j = 0; j < step.slots.end_slot; j += kWordCodes) {
        const std::uint32_t* row = page.v_codes + j / kWordCodes * step.head_dim + d;
#pragma GCC unroll 8
        for (int n = 0; n < static_cast<int>(kWordCodes); ++n)
#pragma GCC unroll 8
            for (int i = 0; i < kVectors; ++i) {
                const __m256 code = codes_of(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 8 * i)), n);
#pragma GCC unroll 4
                for (int r = 0; r < kBatch; ++r)
                    sum[r][i] = _mm256_fmadd_ps(_mm256_set1_ps(weights[r].scaled[j + n]), code, sum[r][i]);
            }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) _mm256_storeu_ps(batch[r]->o + d + 8 * i, sum[r][i]);
}

// Adds the weighted values in one dimension.
template <int kBatch>
SLIPSTREAM_AVX2 void add_value(const PageStep& step, const Page& page, QueryState* const* batch,
                               const Weights (&weights)[kBatch], std::int64_t d) {
    for (int r = 0; r < kBatch; ++r) {
        float sum = __builtin_fmaf(batch[r]->o[d], weights[r].keep, weights[r].minimum);
        for (std::int64_t j = 0; j < step.slots.end_slot; j += kWordCodes) {
            const std::uint32_t word = page.v_codes[j / kWordCodes * step.head_dim + d];
            for (int n = 0; n < static_cast<int>(kWordCodes); ++n) {
                const auto code = static_cast<float>((word >> (4 * n)) & 0xfU);
                sum = __builtin_fmaf(weights[r].scaled[j + n], code / unscale_of(n), sum);
            }
        }
        batch[r]->o[d] = sum;
    }
}

template <int kBatch, bool kSoftcap>
SLIPSTREAM_AVX2 void reduce(const PageStep& step, QueryState* const* batch) {
    const Page page(step.page, step.head_dim);
    const std::int64_t stride = (step.head_dim + 15) / 16 * 16;
    // A page has about a line for each dimension.
    for (std::int64_t d = 0; d < step.head_dim; ++d) _mm_prefetch(step.next + 64 * d, _MM_HINT_T1);
    float of_minimums[kBatch];
    for (int r = 0; r < kBatch; ++r)
        of_minimums[r] = scale_query(page, step.head_dim, batch[r]->q, step.scaled_q + r * stride);
    Weights weights[kBatch];
    constexpr int kVectors = kBatch == 1 ? 8 : kBatch == 2 ? 4 : 2;
    add_all_products<kBatch, kVectors>(step, page, stride, weights);
    for (int r = 0; r < kBatch; ++r) {
        for (float& score : weights[r].scaled) score += of_minimums[r];
        weights[r].keep = softmax_step<kSoftcap>(weights[r].scaled, step.slots, *batch[r]);
        scale_weights(page, weights[r]);
    }
    std::int64_t d = 0;
    for (; d + 8 * kVectors <= step.head_dim; d += 8 * kVectors)
        add_values<kBatch, kVectors>(step, page, batch, weights, d);
    for (; d + 8 <= step.head_dim; d += 8) add_values<kBatch, 1>(step, page, batch, weights, d);
    for (; d < step.head_dim; ++d) add_value<kBatch>(step, page, batch, weights, d);
}

template <bool kSoftcap>
void reduce_batch(const PageStep& step, QueryState* const* batch, int n_batch) {
    using Reduce = void (*)(const PageStep& step, QueryState* const* batch);
    static constexpr Reduce kReduce[kMaxShared] = {reduce<1, kSoftcap>, reduce<2, kSoftcap>, reduce<3, kSoftcap>,
                                                   reduce<4, kSoftcap>};
    for (; n_batch > 0; n_batch -= kMaxShared, batch += kMaxShared)
        kReduce[(n_batch < kMaxShared ? n_batch : kMaxShared) - 1](step, batch);
}

// Returns the elements [at, at + 8) of the keys or values of a step, of slot `slot` and the next ones (keys) or from
// dimension d on (values), within the range of a page.
template <DType kType, bool kKeys>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 load_rows(const PageRows& rows, std::int64_t slot,
                                                               std::int64_t d) {
    const std::byte* base = kKeys ? rows.k : rows.v;
    __m256 x = load8<kType>(base, kKeys ? d * kPageSlots + slot : slot * rows.head_dim + d);
    if constexpr (kType == DType::Q8_0) {
        const std::uint16_t* scales = step_scales(base, rows.head_dim) + d / kQ8Block * kPageSlots + slot;
        x = _mm256_mul_ps(x, kKeys ? load8<DType::BF16>(reinterpret_cast<const std::byte*>(scales), 0)
                                   : _mm256_set1_ps(to_float(BFloat16{*scales})));
    }
    return _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(kPageMost)), _mm256_set1_ps(-kPageMost));
}
// Loads the last `n` dimensions of a value row, from d on; n < 8. The other lanes repeat dimension d.
template <DType kType>
SLIPSTREAM_AVX2 __m256 load_last(const PageRows& rows, std::int64_t slot, std::int64_t d, std::int64_t n) {
    constexpr auto kBytes = static_cast<std::size_t>(kKvElementBytes<kType>);
    alignas(32) std::byte elements[8 * kBytes];
    const std::byte* from = rows.v + static_cast<std::size_t>(slot * rows.head_dim + d) * kBytes;
    for (std::size_t i = 0; i < 8; ++i)
        std::memcpy(elements + i * kBytes, from + (i < static_cast<std::size_t>(n) ? i : 0) * kBytes, kBytes);
    __m256 x = load8<kType>(elements, 0);
    if constexpr (kType == DType::Q8_0)
        x = _mm256_mul_ps(
            x,
            _mm256_set1_ps(to_float(BFloat16{step_scales(rows.v, rows.head_dim)[d / kQ8Block * kPageSlots + slot]})));
    return _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(kPageMost)), _mm256_set1_ps(-kPageMost));
}

[[gnu::always_inline]] SLIPSTREAM_AVX2 inline float least_of(__m256 x) {
    const __m128 four = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)));
}
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline float largest_of(__m256 x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// How the numbers of a dimension of K, or of a slot of V, are rounded: page_minimum() and page_scale().
struct Rounding {
    Half scale;
    Half minimum;
    float minimum_wide;
    float factor;

    SLIPSTREAM_AVX2 Rounding(float least, float largest) {
        const __m128i down = _mm_cvtps_ph(_mm_set_ss(least + 0.0F), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        minimum.bits = static_cast<std::uint16_t>(_mm_cvtsi128_si32(down));
        minimum_wide = _mm_cvtss_f32(_mm_cvtph_ps(down));
        const float step = (largest - minimum_wide) / kPageLevels + 0.0F;
        const __m128i up = _mm_cvtps_ph(_mm_set_ss(step), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
        scale.bits = static_cast<std::uint16_t>(_mm_cvtsi128_si32(up));
        factor = scale.bits == 0 ? 0.0F : 1.0F / _mm_cvtss_f32(_mm_cvtph_ps(up));
    }
    [[gnu::always_inline]] SLIPSTREAM_AVX2 [[nodiscard]] inline __m256i codes(__m256 x) const {
        return _mm256_cvtps_epi32(
            _mm256_mul_ps(_mm256_sub_ps(x, _mm256_set1_ps(minimum_wide)), _mm256_set1_ps(factor)));
    }
};

// Writes the part of a page that keys take. Without kFull, slots from rows.n_slots on are not there.
template <DType kType, bool kFull>
SLIPSTREAM_AVX2 void write_keys(const PageRows& rows, const PageParts<std::byte>& page) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (std::int64_t d = 0; d < rows.head_dim; ++d) {
        __m256 x[kWords];
        __m256i there[kWords];
        __m256 least;
        __m256 largest;
#pragma GCC unroll 8
        for (int n = 0; n < kWords; ++n) {
            x[n] = load_rows<kType, true>(rows, 8 * n, d);
            if constexpr (!kFull) {
                // The first slot again in place of those that are not there.
                there[n] = _mm256_cmpgt_epi32(_mm256_set1_epi32(rows.n_slots - 8 * n), lane);
                x[n] = _mm256_blendv_ps(_mm256_broadcastss_ps(_mm256_castps256_ps128(x[0])), x[n],
                                        _mm256_castsi256_ps(there[n]));
            }
            least = n == 0 ? x[n] : _mm256_min_ps(least, x[n]);
            largest = n == 0 ? x[n] : _mm256_max_ps(largest, x[n]);
        }
        const Rounding rounding(least_of(least), largest_of(largest));
        page.k_scales[d] = rounding.scale;
        page.k_minimums[d] = rounding.minimum;
        __m256i words = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int n = 0; n < kWords; ++n) {
            __m256i codes = rounding.codes(x[n]);
            if constexpr (!kFull) codes = _mm256_and_si256(codes, there[n]);
            words = _mm256_or_si256(words, _mm256_slli_epi32(codes, 4 * n));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(page.k_codes + d * kSlotWords), words);
    }
}

// Writes the part of a page that eight slots of values take, `first` and the next ones.
template <DType kType>
SLIPSTREAM_AVX2 void write_values(const PageRows& rows, const PageParts<std::byte>& page, std::int64_t first) {
    const std::int64_t whole = rows.head_dim / 8 * 8;
    const std::int64_t rest = rows.head_dim - whole;
    const int n_slots =
        rows.n_slots - first < kWordCodes ? static_cast<int>(rows.n_slots - first) : static_cast<int>(kWordCodes);
    std::uint32_t* row = page.v_codes + first / kWordCodes * rows.head_dim;
    for (int n = 0; n < n_slots; ++n) {
        const std::int64_t slot = first + n;
        __m256 least = whole > 0 ? load_rows<kType, false>(rows, slot, 0) : load_last<kType>(rows, slot, 0, rest);
        __m256 largest = least;
        const auto count = [&](__m256 x) SLIPSTREAM_AVX2 {
            least = _mm256_min_ps(least, x);
            largest = _mm256_max_ps(largest, x);
        };
        for (std::int64_t d = 8; d < whole; d += 8) count(load_rows<kType, false>(rows, slot, d));
        if (rest > 0) count(load_last<kType>(rows, slot, whole, rest));
        const Rounding rounding(least_of(least), largest_of(largest));
        page.v_scales[slot] = rounding.scale;
        page.v_minimums[slot] = rounding.minimum;
        const auto put = [&](std::int64_t d, __m256 x, std::int64_t count_of) SLIPSTREAM_AVX2 {
            const __m256i codes = _mm256_slli_epi32(rounding.codes(x), 4 * n);
            if (count_of == 8) {
                auto* at = reinterpret_cast<__m256i*>(row + d);
                _mm256_storeu_si256(at, _mm256_or_si256(_mm256_loadu_si256(at), codes));
                return;
            }
            alignas(32) std::uint32_t words[8];
            _mm256_store_si256(reinterpret_cast<__m256i*>(words), codes);
            for (std::int64_t i = 0; i < count_of; ++i) row[d + i] |= words[i];
        };
        for (std::int64_t d = 0; d < whole; d += 8) put(d, load_rows<kType, false>(rows, slot, d), 8);
        if (rest > 0) put(whole, load_last<kType>(rows, slot, whole, rest), rest);
    }
}

template <DType kType>
void write_page(const PageRows& rows, std::byte* page) {
    const PageParts<std::byte> parts(page, rows.head_dim);
    // Slots that are not there, and what the codes of slots are added to.
    std::memset(parts.v_codes, 0, view_page_bytes(rows.head_dim) - static_cast<std::size_t>(32 * rows.head_dim));
    rows.n_slots == kPageSlots ? write_keys<kType, true>(rows, parts) : write_keys<kType, false>(rows, parts);
    for (std::int64_t first = 0; first < rows.n_slots; first += kWordCodes) write_values<kType>(rows, parts, first);
}

}  // namespace

void reduce_page_avx2(const PageStep& step, QueryState* const* batch, int n_batch) {
    step.slots.softcap == 0.0F ? reduce_batch<false>(step, batch, n_batch) : reduce_batch<true>(step, batch, n_batch);
}

void write_page_avx2(const PageRows& rows, std::byte* page) {
    switch (rows.dtype) {
        case DType::F32:
            return write_page<DType::F32>(rows, page);
        case DType::F16:
            return write_page<DType::F16>(rows, page);
        case DType::BF16:
            return write_page<DType::BF16>(rows, page);
        default:
            return write_page<DType::Q8_0>(rows, page);
    }
}

}  // namespace slipstream::cpu
#endif
