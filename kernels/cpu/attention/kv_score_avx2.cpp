// A scored step in AVX2: 32 slots in four registers per query, twice; dimensions in ascending order. Up to two queries
// share each load and widening.
#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/kv_score_step.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)

namespace slipstream::cpu {

namespace {

constexpr int kVectors = 4;
constexpr std::int64_t kHalf = 8 * kVectors;

template <DType kType, int kBatch, bool kSoftcap>
SLIPSTREAM_AVX2 void score(const ScoreStep& step, std::int64_t first, const std::byte* next) {
    constexpr std::int64_t kElementBytes = kKvElementBytes<kType>;
    const float* q = step.q + first * step.head_dim;
    alignas(32) float products[kBatch][kStepTokens];
    for (std::int64_t half = 0; half < kStepTokens; half += kHalf) {
        __m256 sum[kBatch][kVectors];
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm256_setzero_ps();
        // For Q8_0, `products` holds the sum over the previous blocks of dimensions, each times its scale.
        if constexpr (kType == DType::Q8_0)
            for (int r = 0; r < kBatch; ++r)
                for (int i = 0; i < kVectors; ++i) _mm256_store_ps(products[r] + half + 8 * i, _mm256_setzero_ps());
        for (std::int64_t d = 0; d < step.head_dim; ++d) {
            const std::int64_t at = d * kStepTokens + half;
#pragma GCC unroll 4
            for (std::int64_t byte = 0; byte < kHalf * kElementBytes; byte += 64)
                _mm_prefetch(next + at * kElementBytes + byte, _MM_HINT_T1);
            __m256 key[kVectors];
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) key[i] = load8<kType>(step.k, at + 8 * i);
#pragma GCC unroll 4
            for (int r = 0; r < kBatch; ++r) {
                const __m256 query = _mm256_set1_ps(q[r * step.head_dim + d]);
#pragma GCC unroll 4
                for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm256_fmadd_ps(query, key[i], sum[r][i]);
            }
            if constexpr (kType == DType::Q8_0) {
                if ((d + 1) % kQ8Block != 0 && d + 1 != step.head_dim) continue;
                const auto* scales = reinterpret_cast<const std::byte*>(step_scales(step.k, step.head_dim));
#pragma GCC unroll 4
                for (int i = 0; i < kVectors; ++i) {
                    const __m256 scale = load8<DType::BF16>(scales, d / kQ8Block * kStepTokens + half + 8 * i);
#pragma GCC unroll 4
                    for (int r = 0; r < kBatch; ++r) {
                        float* product = products[r] + half + 8 * i;
                        _mm256_store_ps(product, _mm256_fmadd_ps(sum[r][i], scale, _mm256_load_ps(product)));
                        sum[r][i] = _mm256_setzero_ps();
                    }
                }
            }
        }
        if constexpr (kType != DType::Q8_0)
            for (int r = 0; r < kBatch; ++r)
                for (int i = 0; i < kVectors; ++i) _mm256_store_ps(products[r] + half + 8 * i, sum[r][i]);
    }
    for (int r = 0; r < kBatch; ++r)
        reduce_groups<kSoftcap>(products[r], step, step.out + (first + r) * step.out_stride);
}

template <DType kType, bool kSoftcap>
SLIPSTREAM_AVX2 void score_queries(const ScoreStep& step) {
    std::int64_t i = 0;
    for (; i + 2 <= step.n_queries; i += 2) score<kType, 2, kSoftcap>(step, i, i == 0 ? step.next_k : step.k);
    if (i < step.n_queries) score<kType, 1, kSoftcap>(step, i, i == 0 ? step.next_k : step.k);
}

// Scores a step for all queries. Kernels without a softcap are compiled apart, so that they have no instruction more.
template <DType kType>
SLIPSTREAM_AVX2 void score_all(const ScoreStep& step) {
    step.softcap == 0.0F ? score_queries<kType, false>(step) : score_queries<kType, true>(step);
}

}  // namespace

void score_groups_avx2(const ScoreStep& step) {
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
