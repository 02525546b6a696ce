// Writes KV rows to scratch, and commits them: copies them from scratch to their positions in KV chunks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/float16.h"
#include "kernels/base/q8_row.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu_device.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream::cpu {

namespace {

ThreadPool& pool_of(ExecRef exec) {
    return static_cast<CpuDevice&>(exec.device).pool();
}

void round_to_half(const float* src, Half* dst, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) dst[i] = to_half(src[i]);
}

#if defined(__x86_64__)
SLIPSTREAM_AVX2 void round_to_half_f16c(const float* src, Half* dst, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    round_to_half(src + i, dst + i, n - i);
}
#endif

// Rounds a block of `n` floats (up to kQ8Block) to codes at `dst`; returns its scale (q8_row.h).
BFloat16 round_to_codes(const float* src, std::int8_t* dst, std::int64_t n) {
    float most = 0.0F;
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(q8_within(src[i])));
    const BFloat16 scale = q8_scale(most);
    for (std::int64_t i = 0; i < n; ++i) dst[i] = q8_code(q8_within(src[i]), q8_factor(scale));
    return scale;
}

#if defined(__x86_64__)
// Returns eight numbers limited by q8_within(): for NaN, _mm256_min_ps returns its second operand.
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 load_within(const float* src) {
    const __m256 below = _mm256_min_ps(_mm256_loadu_ps(src), _mm256_set1_ps(kQ8Most));
    return _mm256_max_ps(below, _mm256_set1_ps(-kQ8Most));
}

SLIPSTREAM_AVX2 BFloat16 round_to_codes_avx2(const float* src, std::int8_t* dst, std::int64_t n) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 most8 = _mm256_setzero_ps();
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) most8 = _mm256_max_ps(most8, _mm256_and_ps(load_within(src + i), magnitude));
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, most8);
    float most = *std::max_element(lanes, lanes + 8);
    for (; i < n; ++i) most = std::max(most, std::abs(q8_within(src[i])));
    const BFloat16 scale = q8_scale(most);
    const float factor = q8_factor(scale);
    for (i = 0; i + 8 <= n; i += 8) {  // rounds to the nearest integer, ties to even
        const __m256i codes = _mm256_cvtps_epi32(_mm256_mul_ps(load_within(src + i), _mm256_set1_ps(factor)));
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(dst + i), _mm_packs_epi16(words, words));
    }
    for (; i < n; ++i) dst[i] = q8_code(q8_within(src[i]), factor);
    return scale;
}
#endif

// The functions of a kernel variant that round rows.
struct Rounding {
    void (*to_half)(const float* src, Half* dst, std::int64_t n);
    BFloat16 (*to_codes)(const float* src, std::int8_t* dst, std::int64_t n);
};

// Rounds `src`, [head_dim], to codes and scales at `row`, a head's row in scratch. What pads codes and scales becomes
// 0.
void round_head_to_codes(const KvLayout& shape, const Rounding& rounding, const float* src, std::byte* row) {
    std::byte* scales = row + shape.head_code_bytes();
    std::memset(scales - 4, 0, 4);
    std::memset(row + shape.head_row_bytes() - 4, 0, 4);
    for (std::int64_t d = 0; d < shape.head_dim; d += kQ8Block) {
        const BFloat16 scale =
            rounding.to_codes(src + d, reinterpret_cast<std::int8_t*>(row) + d, std::min(kQ8Block, shape.head_dim - d));
        std::memcpy(scales + d / kQ8Block * 2, &scale, sizeof(scale));
    }
}

// Rounds `src`, [n_kv_heads * head_dim], to shape.dtype at `dst`, a row of scratch.
void round_row(const KvLayout& shape, const Rounding& rounding, const float* src, std::byte* dst) {
    const std::int64_t n = shape.n_kv_heads * shape.head_dim;
    switch (shape.dtype) {
        case DType::F32:
            std::memcpy(dst, src, row_bytes(DType::F32, n));
            return;
        case DType::F16:
            rounding.to_half(src, reinterpret_cast<Half*>(dst), n);
            return;
        case DType::Q8_0:
            for (std::int64_t head = 0; head < shape.n_kv_heads; ++head)
                round_head_to_codes(shape, rounding, src + head * shape.head_dim,
                                    dst + static_cast<std::size_t>(head) * shape.head_row_bytes());
            return;
        default: {
            auto* out = reinterpret_cast<BFloat16*>(dst);
            for (std::int64_t i = 0; i < n; ++i) out[i] = to_bfloat16(src[i]);
        }
    }
}

void write_rows(ExecRef exec, const KvWriteArgs& args, const Rounding& rounding) {
    const std::size_t stride = args.shape.scratch_row_bytes();
    pool_of(exec).run(args.k.rows(), 8, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::size_t at = static_cast<std::size_t>(args.scratch_rows[t]) * stride;
            round_row(args.shape, rounding, float_row(args.k, t), args.scratch_k + at);
            round_row(args.shape, rounding, float_row(args.v, t), args.scratch_v + at);
        }
    });
}

template <typename Element>
void commit_row(const KvCommitArgs& args, std::int64_t layer, std::int64_t index, std::int64_t head) {
    const KvLayout& shape = args.shape;
    const std::int64_t position = args.first_position + index;
    const std::int64_t slot = position % kChunkTokens;
    std::byte* chunk = args.chunks[layer * args.layer_chunks + position / kChunkTokens];
    const std::size_t from = static_cast<std::size_t>(layer) * args.layer_bytes +
                             static_cast<std::size_t>(args.scratch_rows[index]) * shape.scratch_row_bytes() +
                             static_cast<std::size_t>(head) * shape.head_row_bytes();
    put_key_column(reinterpret_cast<Element*>(chunk + k_step_offset(shape, head, slot / kStepTokens)),
                   reinterpret_cast<const Element*>(args.scratch_k + from), shape.head_dim, slot % kStepTokens);
    std::memcpy(chunk + v_row_offset(shape, head, slot), args.scratch_v + from, element_bytes(shape, shape.head_dim));
    if (!shape.has_scales()) return;
    std::byte* step = chunk + k_step_offset(shape, head, slot / kStepTokens);
    const std::size_t scales = from + shape.head_code_bytes();
    put_scales(shape, step, args.scratch_k + scales, slot % kStepTokens);
    put_scales(shape, step + shape.part_bytes(), args.scratch_v + scales, slot % kStepTokens);
}

}  // namespace

void kv_write_scalar(ExecRef exec, const KvWriteArgs& args) {
    write_rows(exec, args, {round_to_half, round_to_codes});
}

#if defined(__x86_64__)
void kv_write_avx2(ExecRef exec, const KvWriteArgs& args) {
    write_rows(exec, args, {round_to_half_f16c, round_to_codes_avx2});
}
#endif

void kv_commit(ExecRef exec, const KvCommitArgs& args) {
    // A thread takes all rows of one kv head in a layer: different heads never share a cache line of a KV chunk, but
    // rows of one head do.
    const std::int64_t n_heads = args.shape.n_kv_heads;
    const auto commit = args.shape.dtype == DType::F32    ? commit_row<std::uint32_t>
                        : args.shape.dtype == DType::Q8_0 ? commit_row<std::uint8_t>
                                                          : commit_row<std::uint16_t>;
    pool_of(exec).run(args.n_layers * n_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t piece = begin; piece < end; ++piece)
            for (std::int64_t i = 0; i < args.n_rows; ++i) commit(args, piece / n_heads, i, piece % n_heads);
    });
}

}  // namespace slipstream::cpu
