// An attention step over codes of Q8_0 in AVX-512 VNNI: products of integers, 32 in an instruction. The codes have 8
// bits; queries, and weights times the scales of the values, are rounded to 16. Sums of products are exact, so their
// order does not matter.
//   Scores: 64 slots in four registers a query. The products of a block of 32 dimensions are summed as integers and
//           added times the block's scale, blocks in ascending order; then the query's scale.
//   Values: 64 dimensions in four registers a query; the products of all slots are summed as integers. The codes of
//           weights times scales are at most those of the largest weight and the largest scale.
// Rows are read in pairs: their bytes are interleaved and widened, so that each 32 bits of a register have the codes of
// one slot in two dimensions (keys), or of one dimension in two slots (values). Up to six queries share that.
#include <algorithm>

#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/largest_avx512.h"
#include "kernels/cpu/attention/softmax_avx512.h"
#include "kernels/cpu/attention/widen.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

namespace {

/// The code of the largest of the numbers that are rounded to 16 bits together: the largest int16.
constexpr float kLargestCode = 32767.0F;
constexpr int kVectors = kStepTokens / 16;
constexpr int kPairsOfABlock = kQ8Block / 2;
constexpr int kPairsOfAStep = kStepTokens / 2;

// Returns the factor that turns numbers whose largest magnitude is `most` into codes; most / kLargestCode turns codes
// back.
[[gnu::always_inline]] inline float code_factor(float most) {
    return most > 0.0F ? kLargestCode / most : 0.0F;
}

// Stores the codes of 16 numbers, x * code_factor rounded to int16, at `codes`.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void put_codes(std::int32_t* codes, __m512 x, __m512 code_factor) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes),
                       _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(x, code_factor))));
}

// Two rows of 64 codes, interleaved and widened: each 32 bits have the codes of one column in both rows. Columns of the
// registers: {0-7, 16-23}, {8-15, 24-31}, {32-39, 48-55}, {40-47, 56-63}.
struct RowPair {
    __m512i codes[kVectors];
};
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline RowPair interleaved(__m512i even, __m512i odd) {
    const __m512i low = _mm512_unpacklo_epi8(even, odd);
    const __m512i high = _mm512_unpackhi_epi8(even, odd);
    return {{_mm512_cvtepi8_epi16(_mm512_castsi512_si256(low)), _mm512_cvtepi8_epi16(_mm512_castsi512_si256(high)),
             _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(low, 1)),
             _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(high, 1))}};
}

// Returns the sums of columns 16 * i to 16 * i + 15 as floats, in ascending order. `sums` have the order of RowPair.
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline __m512 in_order(const __m512i (&sums)[kVectors], int i) {
    const __m512i first = sums[i / 2 * 2];
    const __m512i second = sums[i / 2 * 2 + 1];
    return _mm512_cvtepi32_ps(i % 2 == 0 ? _mm512_shuffle_i64x2(first, second, 0x44)
                                         : _mm512_shuffle_i64x2(first, second, 0xee));
}

// Returns the scales of slots 16 * i to 16 * i + 15 as floats. `scales`: [64 slots].
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline __m512 scales_of(const std::uint16_t* scales, int i) {
    return load16<DType::BF16>(reinterpret_cast<const std::byte*>(scales), 16 * i, 0xffff);
}

// Returns a mask of the first n of 16 elements; of all 16 if n is more.
[[gnu::always_inline]] inline __mmask16 first_of(std::int64_t n) {
    return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1U << n) - 1U);
}

// Fetches a line of the next step into L2: into L1 it takes a fifth longer (kernels/NOTES.md).
[[gnu::always_inline]] inline void prefetch(const std::byte* line) {
    _mm_prefetch(line, _MM_HINT_T1);
}

// Integer sums of products for each query: of 64 slots, or of 64 dimensions.
template <int kBatch>
struct Sums {
    __m512i of[kBatch][kVectors];

    [[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI void clear() {
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i) of[r][i] = _mm512_setzero_si512();
    }
};

// Adds q . k of the 64 slots to the scores of each query.
template <int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void add_keys(const AttentionStep& step, QueryState* const* batch,
                                                                   __m512 (&score)[kBatch][kVectors]) {
    float most[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
        __m512i bits = _mm512_setzero_si512();
        for (std::int64_t d = 0; d < step.head_dim; d += 16)
            bits = larger(bits, _mm512_maskz_loadu_ps(first_of(step.head_dim - d), batch[r]->q + d));
        most[r] = largest(bits);
    }
    const std::uint16_t* scales = step_scales(step.k, step.head_dim);
    for (std::int64_t block = 0; block < step.head_dim; block += kQ8Block, scales += kStepTokens) {
        alignas(64) std::int32_t codes[kBatch][kPairsOfABlock];
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                const std::int64_t d = block + 16 * half;
                put_codes(codes[r] + 8 * half, _mm512_maskz_loadu_ps(first_of(step.head_dim - d), batch[r]->q + d),
                          _mm512_set1_ps(code_factor(most[r])));
            }
        Sums<kBatch> sums;
        sums.clear();
        const std::int64_t n_pairs = std::min<std::int64_t>(step.head_dim - block, kQ8Block) / 2;
        const std::byte* rows = step.k + kStepTokens * block;
        for (std::int64_t pair = 0; pair < n_pairs; ++pair, rows += 2 * kStepTokens) {
            prefetch(step.next_k + (rows - step.k));
            prefetch(step.next_k + (rows - step.k) + kStepTokens);
            const RowPair keys = interleaved(_mm512_loadu_si512(rows), _mm512_loadu_si512(rows + kStepTokens));
#pragma GCC unroll 6
            for (int r = 0; r < kBatch; ++r) {
                const __m512i query = _mm512_set1_epi32(codes[r][pair]);
#pragma GCC unroll 4
                for (int i = 0; i < kVectors; ++i)
                    sums.of[r][i] = _mm512_dpwssd_epi32(sums.of[r][i], keys.codes[i], query);
            }
        }
        // Prefetches the scales of this block in the next step: [64] BF16, 128 bytes.
        prefetch(step.next_k + kStepTokens * step.head_dim + 4 * block);
        prefetch(step.next_k + kStepTokens * step.head_dim + 4 * block + 64);
        __m512 scale[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) scale[i] = scales_of(scales, i);
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i)
                score[r][i] = _mm512_fmadd_ps(in_order(sums.of[r], i), scale[i], score[r][i]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i)
            score[r][i] = _mm512_mul_ps(score[r][i], _mm512_set1_ps(most[r] / kLargestCode));
}

// The largest scale of the visible slots in a block of 32 dimensions of the values (most), and each slot's scale
// divided by it (part); 0 for slots that are not visible, whatever their scales are.
struct BlockScales {
    float most;
    __m512 part[kVectors];
};
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline BlockScales block_scales(const AttentionStep& step,
                                                                              std::int64_t block) {
    const std::uint64_t visible = visible_slots(step);
    const std::uint16_t* scales = step_scales(step.v, step.head_dim) + block * kStepTokens;
    prefetch(step.next_v + kStepTokens * (step.head_dim + 2 * block));
    prefetch(step.next_v + kStepTokens * (step.head_dim + 2 * block) + 64);
    BlockScales result;
    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
        result.part[i] = _mm512_maskz_mov_ps(static_cast<__mmask16>(visible >> (16 * i)), scales_of(scales, i));
        bits = larger(bits, result.part[i]);
    }
    result.most = largest(bits);
    const __m512 over = _mm512_set1_ps(result.most > 0.0F ? 1.0F / result.most : 0.0F);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) result.part[i] = _mm512_mul_ps(result.part[i], over);
    return result;
}

// The attention weights of a query for the 64 slots of a step.
struct Weights {
    alignas(64) float of[kStepTokens];  // after round(): the largest is kLargestCode
    float factor;                       // multiplies rounded weights to give weights again
    float keep;                         // factor of o, from softmax()

    [[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI void round() {
        __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) bits = larger(bits, _mm512_load_ps(of + 16 * i));
        const float most = largest(bits);
        factor = most / kLargestCode;
        const __m512 to_codes = _mm512_set1_ps(code_factor(most));
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i)
            _mm512_store_ps(of + 16 * i, _mm512_mul_ps(_mm512_load_ps(of + 16 * i), to_codes));
    }
};

// Multiplies o[d .. d + 64), or to the end of the head, of each query by its `keep` and adds the weighted values.
template <int kBatch>
[[gnu::always_inline]] SLIPSTREAM_AVX512_VNNI inline void add_values(const AttentionStep& step,
                                                                     QueryState* const* batch,
                                                                     const Weights (&weights)[kBatch], std::int64_t d) {
    const std::int64_t n = std::min<std::int64_t>(step.head_dim - d, kStepTokens);
    const __mmask64 columns = ~std::uint64_t{0} >> (64 - n);
    alignas(64) std::int32_t codes[kBatch][2][kPairsOfAStep];
    float most[2];
    for (int half = 0; half < 2; ++half) {
        const BlockScales scales = block_scales(step, d / kQ8Block + (n > kQ8Block ? half : 0));
        most[half] = scales.most;
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i)
                put_codes(codes[r][half] + 8 * i, _mm512_load_ps(weights[r].of + 16 * i), scales.part[i]);
    }
    Sums<kBatch> sums;
    sums.clear();
    for (int pair = step.first_slot / 2; 2 * pair < step.end_slot; ++pair) {
        const std::int64_t at = 2 * pair * step.head_dim + d;
        prefetch(step.next_v + at);
        prefetch(step.next_v + at + step.head_dim);
        const RowPair values = interleaved(_mm512_maskz_loadu_epi8(columns, step.v + at),
                                           _mm512_maskz_loadu_epi8(columns, step.v + at + step.head_dim));
#pragma GCC unroll 6
        for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < kVectors; ++i)
                sums.of[r][i] =
                    _mm512_dpwssd_epi32(sums.of[r][i], values.codes[i], _mm512_set1_epi32(codes[r][i / 2][pair]));
    }
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
            const __mmask16 mask = first_of(n - 16 * i);
            float* o = batch[r]->o + d + 16 * i;
            const __m512 kept = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, o), _mm512_set1_ps(weights[r].keep));
            _mm512_mask_storeu_ps(
                o, mask,
                _mm512_fmadd_ps(in_order(sums.of[r], i), _mm512_set1_ps(weights[r].factor * most[i / 2]), kept));
        }
}

template <int kBatch, bool kSoftcap>
SLIPSTREAM_AVX512_VNNI void reduce(const AttentionStep& step, QueryState* const* batch) {
    __m512 score[kBatch][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) score[r][i] = _mm512_setzero_ps();
    add_keys<kBatch>(step, batch, score);
    Weights weights[kBatch];
#pragma GCC unroll 6
    for (int r = 0; r < kBatch; ++r) {
        weights[r].keep = softmax<kSoftcap>(score[r], step, *batch[r], weights[r].of);
        weights[r].round();
    }
    for (std::int64_t d = 0; d < step.head_dim; d += kStepTokens) add_values<kBatch>(step, batch, weights, d);
}

template <bool kSoftcap>
void reduce_batch(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    using Reduce = void (*)(const AttentionStep& step, QueryState* const* batch);
    static constexpr Reduce kReduce[kMaxQ8Batch] = {reduce<1, kSoftcap>, reduce<2, kSoftcap>, reduce<3, kSoftcap>,
                                                    reduce<4, kSoftcap>, reduce<5, kSoftcap>, reduce<6, kSoftcap>};
    kReduce[n_batch - 1](step, batch);
}

}  // namespace

void reduce_step_q8_vnni(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    step.softcap == 0.0F ? reduce_batch<false>(step, batch, n_batch) : reduce_batch<true>(step, batch, n_batch);
}

}  // namespace slipstream::cpu
#endif
