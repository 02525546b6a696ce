// A scored step in AVX-512: 64 slots in four registers per query, dimensions in ascending order. Up to four queries
// share each load and widening.
#include <limits>

#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/exp_avx512.h"
#include "kernels/cpu/attention/kv_score_step.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)

namespace slipstream::cpu {

namespace {

constexpr int kVectors = 4;
constexpr __mmask16 kAll = 0xffff;

// Transposes 64 values in slot order: afterwards vector i has slot 2 i of the eight slot groups, then their slot 2 i +
// 1.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void slots_side_by_side(__m512 (&v)[kVectors]) {
    // Takes from two vectors, which have four slot groups together, slots 0 to 3 of each group (low), or 4 to 7 (high).
    const __m512i low = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    const __m512 low0 = _mm512_permutex2var_ps(v[0], low, v[1]);
    const __m512 high0 = _mm512_permutex2var_ps(v[0], high, v[1]);
    const __m512 low1 = _mm512_permutex2var_ps(v[2], low, v[3]);
    const __m512 high1 = _mm512_permutex2var_ps(v[2], high, v[3]);
    // Takes from two such results, which have four slots of eight slot groups together, the first two slots (even), or
    // the last two (odd).
    const __m512i even = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(8));
    v[0] = _mm512_permutex2var_ps(low0, even, low1);
    v[1] = _mm512_permutex2var_ps(low0, odd, low1);
    v[2] = _mm512_permutex2var_ps(high0, even, high1);
    v[3] = _mm512_permutex2var_ps(high0, odd, high1);
}

// Writes the scores of the step's slot groups for one query to `out`, as reduce_groups() (kv_score_step.h), but takes
// `products` in registers and sums in another order, so that the bits may differ.
template <bool kSoftcap>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void store_groups(const __m512 (&products)[kVectors],
                                                                  const ScoreStep& step, float* out) {
    const bool mass = step.score == GroupScore::Mass;
    const std::uint64_t there = ~std::uint64_t{0} >> (kStepTokens - step.n_slots);
    const __m512 outside = _mm512_set1_ps(mass ? -std::numeric_limits<float>::infinity() : 0.0F);
    const __m512 scale = _mm512_set1_ps(step.scale);
    __m512 v[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
        const auto mask = static_cast<__mmask16>(there >> (16 * i));
        if constexpr (kSoftcap)
            v[i] =
                _mm512_mask_mov_ps(outside, mask, softcap16(_mm512_mul_ps(products[i], scale), Softcap(step.softcap)));
        else
            v[i] = _mm512_mask_mul_ps(outside, mask, products[i], scale);
    }
    slots_side_by_side(v);
    __m256 best = _mm256_setzero_ps();
    if (mass) {
        const __m512 best16 = _mm512_max_ps(_mm512_max_ps(v[0], v[1]), _mm512_max_ps(v[2], v[3]));
        best = _mm256_max_ps(_mm512_castps512_ps256(best16), _mm512_extractf32x8_ps(best16, 1));
        const __m512 shift = _mm512_broadcast_f32x8(best);
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) v[i] = exp16(_mm512_sub_ps(v[i], shift));
    }
    const __m512 sum16 = _mm512_add_ps(_mm512_add_ps(v[0], v[1]), _mm512_add_ps(v[2], v[3]));
    alignas(32) float sum[kStepGroups];
    _mm256_store_ps(sum, _mm256_add_ps(_mm512_castps512_ps256(sum16), _mm512_extractf32x8_ps(sum16, 1)));
    if (mass) {
        for (float& value : sum) value = log_float(value);
        _mm256_store_ps(sum, _mm256_add_ps(best, _mm256_load_ps(sum)));
    } else {
        for (int g = 0; g < kStepGroups; ++g) sum[g] /= static_cast<float>(slots_of_group(step, g));
    }
    const auto groups = static_cast<__mmask8>(0xffU >> (kStepGroups - groups_there(step)));
    _mm256_mask_storeu_ps(out, groups, _mm256_load_ps(sum));
}

template <DType kType, int kBatch, bool kSoftcap>
SLIPSTREAM_AVX512 void score(const ScoreStep& step, std::int64_t first, const std::byte* next) {
    constexpr std::int64_t kRowBytes = kStepTokens * kKvElementBytes<kType>;
    const float* q = step.q + first * step.head_dim;
    __m512 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_setzero_ps();
    // Only for Q8_0: sums of the previous blocks of 32 dimensions, each times its scale.
    __m512 blocks[kBatch][kVectors];
    if constexpr (kType == DType::Q8_0)
        for (int r = 0; r < kBatch; ++r)
            for (int i = 0; i < kVectors; ++i) blocks[r][i] = _mm512_setzero_ps();
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
#pragma GCC unroll 4
        for (std::int64_t byte = 0; byte < kRowBytes; byte += 64) {
            _mm_prefetch(next + d * kRowBytes + byte, _MM_HINT_T1);
            _mm_prefetch(step.k + d * kRowBytes + kStepL1PrefetchBytes + byte, _MM_HINT_T0);
        }
        __m512 key[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) key[i] = load16<kType>(step.k, d * kStepTokens + 16 * i, kAll);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m512 query = _mm512_set1_ps(q[r * step.head_dim + d]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_fmadd_ps(query, key[i], sum[r][i]);
        }
        if constexpr (kType == DType::Q8_0) {
            if ((d + 1) % kQ8Block != 0 && d + 1 != step.head_dim) continue;
            const auto* scales = reinterpret_cast<const std::byte*>(step_scales(step.k, step.head_dim));
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) {
                const __m512 scale = load16<DType::BF16>(scales, d / kQ8Block * kStepTokens + 16 * i, kAll);
#pragma GCC unroll 4
                for (int r = 0; r < kBatch; ++r) {
                    blocks[r][i] = _mm512_fmadd_ps(sum[r][i], scale, blocks[r][i]);
                    sum[r][i] = _mm512_setzero_ps();
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r) {
        float* out = step.out + (first + r) * step.out_stride;
        if constexpr (kType == DType::Q8_0)
            store_groups<kSoftcap>(blocks[r], step, out);
        else
            store_groups<kSoftcap>(sum[r], step, out);
    }
}

template <DType kType, bool kSoftcap>
SLIPSTREAM_AVX512 void score_queries(const ScoreStep& step) {
    for (std::int64_t i = 0; i < step.n_queries; i += 4) {
        const std::byte* next = i == 0 ? step.next_k : step.k;
        switch (step.n_queries - i) {
            case 1:
                score<kType, 1, kSoftcap>(step, i, next);
                break;
            case 2:
                score<kType, 2, kSoftcap>(step, i, next);
                break;
            case 3:
                score<kType, 3, kSoftcap>(step, i, next);
                break;
            default:
                score<kType, 4, kSoftcap>(step, i, next);
                break;
        }
    }
}

// Scores a step for all queries. Kernels without a softcap are compiled apart, so that they have no instruction more.
template <DType kType>
SLIPSTREAM_AVX512 void score_all(const ScoreStep& step) {
    step.softcap == 0.0F ? score_queries<kType, false>(step) : score_queries<kType, true>(step);
}

}  // namespace

void score_groups_avx512(const ScoreStep& step) {
    switch (step.dtype) {
        case DType::F32:
            return score_all<DType::F32>(step);
        case DType::F16:
            return score_all<DType::F16>(step);
        case DType::BF16:
            return score_all<DType::BF16>(step);
        default:
            return score_all<DType::Q8_0>(step);
    }
}

}  // namespace slipstream::cpu
#endif
