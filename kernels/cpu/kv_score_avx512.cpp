// A scored step in AVX-512: 64 slots in four registers a query, dimensions in ascending order. Up to four queries share
// each load and widening.
#include "kernels/cpu/attention_step.h"
#include "kernels/cpu/kv_score_step.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu/widen.h"

#if defined(__x86_64__)

namespace slipstream::cpu {

namespace {

constexpr int kVectors = 4;
constexpr __mmask16 kAll = 0xffff;

template <DType kType, int kBatch>
SLIPSTREAM_AVX512 void score(const ScoreStep& step, std::int64_t first, const std::byte* next) {
    constexpr std::int64_t kRowBytes = kStepTokens * (kType == DType::F32 ? 4 : 2);
    const float* q = step.q + first * step.head_dim;
    __m512 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) sum[r][i] = _mm512_setzero_ps();
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
    }
    alignas(64) float products[kBatch][kStepTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) _mm512_store_ps(products[r] + 16 * i, sum[r][i]);
    for (int r = 0; r < kBatch; ++r) reduce_groups(products[r], step, step.out + (first + r) * step.out_stride);
}

template <DType kType>
SLIPSTREAM_AVX512 void score_all(const ScoreStep& step) {
    for (std::int64_t i = 0; i < step.n_queries; i += 4) {
        const std::byte* next = i == 0 ? step.next_k : step.k;
        switch (step.n_queries - i) {
            case 1:
                score<kType, 1>(step, i, next);
                break;
            case 2:
                score<kType, 2>(step, i, next);
                break;
            case 3:
                score<kType, 3>(step, i, next);
                break;
            default:
                score<kType, 4>(step, i, next);
                break;
        }
    }
}

}  // namespace

void score_groups_avx512(const ScoreStep& step) {
    switch (step.dtype) {
        case DType::F32:
            return score_all<DType::F32>(step);
        case DType::F16:
            return score_all<DType::F16>(step);
        default:
            return score_all<DType::BF16>(step);
    }
}

}  // namespace slipstream::cpu
#endif
