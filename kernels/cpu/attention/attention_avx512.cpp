// An attention step in AVX-512. Scores: 64 slots in four registers per query, dimensions in ascending order. Values:
// blocks of 64 dimensions in four registers per query, slots in ascending order. Up to four queries share each load and
// widening. Codes of Q8_0 have functions of their own (attention_q8_avx512.cpp).
#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/softmax_avx512.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

// How rows are prefetched, which changes no bit. ByL2: a step ahead into L2 and from there into L1; 16-bit rows that
// several batches read are widened first. IntoL1: some way ahead directly into L1 (numbers: kernels/NOTES.md).
enum class Fetch : std::uint8_t { ByL2, IntoL1 };

/// Bytes of the keys of a step (its values have as many) from which IntoL1 prefetches only half a step ahead: the
/// step's values while its keys are read, then the next step's keys. Below, it prefetches a whole step ahead. L1 holds
/// at least twice as much.
constexpr std::int64_t kNearBytes = 16 << 10;

// Cache lines, for each query, that are prefetched during the softmax.
constexpr int kSoftmaxLines = 16;

// What to prefetch: `with_keys` while keys are multiplied, `with_values` during the softmax and while values are added.
struct Ahead {
    const std::byte* with_keys;
    const std::byte* with_values;
};
template <Fetch kFetch, DType kType>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline Ahead ahead_of(const AttentionStep& step) {
    constexpr std::int64_t kElementBytes = kKvElementBytes<kType>;
    if (kFetch == Fetch::IntoL1 && kStepTokens * step.head_dim * kElementBytes >= kNearBytes)
        return {step.v, step.next_k};
    return {step.next_k, step.next_v};
}

// Prefetches cache lines of `count` elements of `next` from `index` on: into L1, or with ByL2 into L2. With ByL2 it
// also prefetches `now`, the step being read, kStepL1PrefetchBytes further on, into L1, and does nothing for F32: such
// rows usually are rows that were widened, which are in L1.
template <Fetch kFetch, DType kType, std::int64_t count>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void fetch_ahead(const std::byte* now, const std::byte* next,
                                                                 std::int64_t index) {
    if constexpr (kFetch == Fetch::ByL2 && kType == DType::F32) return;
    constexpr std::int64_t kElementBytes = kKvElementBytes<kType>;
#pragma GCC unroll 4
    for (std::int64_t byte = 0; byte < kElementBytes * count; byte += 64) {
        if constexpr (kFetch == Fetch::IntoL1) {
            _mm_prefetch(next + kElementBytes * index + byte, _MM_HINT_T0);
        } else {
            _mm_prefetch(next + kElementBytes * index + byte, _MM_HINT_T1);
            _mm_prefetch(now + kElementBytes * index + kStepL1PrefetchBytes + byte, _MM_HINT_T0);
        }
    }
}

constexpr __mmask16 kAll = 0xffff;

// Multiplies o[d .. d + 16 * kVectors) of each query by `keep` and adds the weighted values, one slot after the other.
template <Fetch kFetch, DType kType, int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void add_values(const AttentionStep& step, QueryState* const* batch,
                                                                const float (&weights)[kMaxBatch][kStepTokens],
                                                                const float (&keep)[kMaxBatch], std::int64_t d,
                                                                __mmask16 mask) {
    const Ahead ahead = ahead_of<kFetch, kType>(step);
    __m512 sum[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i)
            sum[r][i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, batch[r]->o + d + 16 * i), _mm512_set1_ps(keep[r]));
    for (int j = step.first_slot; j < step.end_slot; ++j) {
        fetch_ahead<kFetch, kType, 16 * kVectors>(step.v, ahead.with_values, j * step.head_dim + d);
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

// Adds the weighted values of a step to the states of the queries, as add_values(), in the 16 dimensions from `d` on
// that are past the last block of 64; `mask` says which of them exist.
template <Fetch kFetch, DType kType, int kBatch>
[[gnu::noinline]] SLIPSTREAM_AVX512 void add_16_values(const AttentionStep& step, QueryState* const* batch,
                                                       const float (&weights)[kMaxBatch][kStepTokens],
                                                       const float (&keep)[kMaxBatch], std::int64_t d, __mmask16 mask) {
    add_values<kFetch, kType, kBatch, 1>(step, batch, weights, keep, d, mask);
}

// Adds q . k to the scores of the 64 slots.
template <Fetch kFetch, DType kType, int kBatch, int kVectors>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline void add_products(const AttentionStep& step, const std::byte* next,
                                                                  const float* const (&q)[kBatch],
                                                                  __m512 (&score)[kBatch][kVectors]) {
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
        fetch_ahead<kFetch, kType, kStepTokens>(step.k, next, d * kStepTokens);
        __m512 key[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) key[i] = load16<kType>(step.k, d * kStepTokens + 16 * i, kAll);
#pragma GCC unroll 4
        for (int r = 0; r < kBatch; ++r) {
            const __m512 query = _mm512_set1_ps(q[r][d]);
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) score[r][i] = _mm512_fmadd_ps(query, key[i], score[r][i]);
        }
    }
}

template <Fetch kFetch, DType kType, int kBatch, bool kSoftcap>
SLIPSTREAM_AVX512 void reduce(const AttentionStep& step, QueryState* const* batch) {
    constexpr int kVectors = kStepTokens / 16;
    __m512 score[kBatch][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) score[r][i] = _mm512_setzero_ps();
    const float* q[kBatch];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r) q[r] = batch[r]->q;
    const Ahead ahead = ahead_of<kFetch, kType>(step);
    add_products<kFetch, kType>(step, ahead.with_keys, q, score);
    alignas(64) float weights[kMaxBatch][kStepTokens];
    float keep[kMaxBatch];
#pragma GCC unroll 4
    for (int r = 0; r < kBatch; ++r) {
        // Keeps memory busy during the softmax: the first kSoftmaxLines lines per query of the next step's keys or
        // values (ahead_of()), all of which add_values() prefetches.
        if constexpr (kFetch == Fetch::IntoL1)
            for (int line = 0; line < kSoftmaxLines; ++line)
                _mm_prefetch(ahead.with_values + 64 * (kSoftmaxLines * r + line), _MM_HINT_T0);
        keep[r] = softmax<kSoftcap>(score[r], step, *batch[r], weights[r]);
    }
    std::int64_t d = 0;
    for (; d + 64 <= step.head_dim; d += 64) add_values<kFetch, kType, kBatch, 4>(step, batch, weights, keep, d, kAll);
    for (; d + 16 <= step.head_dim; d += 16) add_16_values<kFetch, kType, kBatch>(step, batch, weights, keep, d, kAll);
    if (d < step.head_dim)
        add_16_values<kFetch, kType, kBatch>(step, batch, weights, keep, d,
                                             static_cast<__mmask16>((1U << (step.head_dim - d)) - 1U));
}

template <Fetch kFetch, DType kType, bool kSoftcap>
SLIPSTREAM_AVX512 void reduce_batch(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    switch (n_batch) {
        case 1:
            reduce<kFetch, kType, 1, kSoftcap>(step, batch);
            break;
        case 2:
            reduce<kFetch, kType, 2, kSoftcap>(step, batch);
            break;
        case 3:
            reduce<kFetch, kType, 3, kSoftcap>(step, batch);
            break;
        default:
            reduce<kFetch, kType, kMaxBatch, kSoftcap>(step, batch);
            break;
    }
}

// Folds a step into the states of n_batch queries. Kernels without a softcap are compiled apart, so that they have no
// instruction more.
template <Fetch kFetch, DType kType>
SLIPSTREAM_AVX512 void reduce_any(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    step.softcap == 0.0F ? reduce_batch<kFetch, kType, false>(step, batch, n_batch)
                         : reduce_batch<kFetch, kType, true>(step, batch, n_batch);
}

template <DType kType>
SLIPSTREAM_AVX512 void widen(const std::byte* src, const std::byte* next, float* dst, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 16) {
        fetch_ahead<Fetch::ByL2, kType, 16>(src, next, i);
        _mm512_storeu_ps(dst + i, load16<kType>(src, i, kAll));
    }
}

template <Fetch kFetch>
void reduce_step(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    switch (step.dtype) {
        case DType::F32:
            reduce_any<kFetch, DType::F32>(step, batch, n_batch);
            break;
        case DType::F16:
            reduce_any<kFetch, DType::F16>(step, batch, n_batch);
            break;
        case DType::BF16:
            reduce_any<kFetch, DType::BF16>(step, batch, n_batch);
            break;
        default:  // Q8_0: integer products need VNNI, so the AVX2 variant's function computes the step, in floats
            reduce_step_avx2(step, batch, n_batch);
            break;
    }
}

}  // namespace

void widen_step_avx512(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n) {
    type == DType::F16 ? widen<DType::F16>(src, next, dst, n) : widen<DType::BF16>(src, next, dst, n);
}

void reduce_step_avx512(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    reduce_step<Fetch::ByL2>(step, batch, n_batch);
}

void reduce_step_avx512_near(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    reduce_step<Fetch::IntoL1>(step, batch, n_batch);
}

}  // namespace slipstream::cpu
#endif
