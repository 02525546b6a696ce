// Rows into scratch, and from scratch behind the committed ones.
#include <cstring>

#include "kernels/base/float16.h"
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

using RoundToHalf = void (*)(const float*, Half*, std::int64_t);

// src: [n] floats; dst: [n] of `dtype`.
void round_row(DType dtype, RoundToHalf to_half_row, const float* src, std::byte* dst, std::int64_t n) {
    switch (dtype) {
        case DType::F32:
            std::memcpy(dst, src, row_bytes(dtype, n));
            return;
        case DType::F16:
            to_half_row(src, reinterpret_cast<Half*>(dst), n);
            return;
        default: {
            auto* out = reinterpret_cast<BFloat16*>(dst);
            for (std::int64_t i = 0; i < n; ++i) out[i] = to_bfloat16(src[i]);
        }
    }
}

void write_rows(ExecRef exec, const KvWriteArgs& args, RoundToHalf to_half_row) {
    const std::size_t stride = args.shape.scratch_row_bytes();
    const std::int64_t cols = args.k.cols();
    pool_of(exec).run(args.k.rows(), 8, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::size_t at = static_cast<std::size_t>(args.scratch_rows[t]) * stride;
            round_row(args.shape.dtype, to_half_row, float_row(args.k, t), args.scratch_k + at, cols);
            round_row(args.shape.dtype, to_half_row, float_row(args.v, t), args.scratch_v + at, cols);
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
                             row_bytes(shape.dtype, head * shape.head_dim);
    put_key_column(reinterpret_cast<Element*>(chunk + k_step_offset(shape, head, slot / kStepTokens)),
                   reinterpret_cast<const Element*>(args.scratch_k + from), shape.head_dim, slot % kStepTokens);
    std::memcpy(chunk + v_row_offset(shape, head, slot), args.scratch_v + from, row_bytes(shape.dtype, shape.head_dim));
}

}  // namespace

void kv_write_scalar(ExecRef exec, const KvWriteArgs& args) {
    write_rows(exec, args, round_to_half);
}

#if defined(__x86_64__)
void kv_write_avx2(ExecRef exec, const KvWriteArgs& args) {
    write_rows(exec, args, round_to_half_f16c);
}
#endif

void kv_commit(ExecRef exec, const KvCommitArgs& args) {
    // A piece is one head's rows: heads never share a cache line of a chunk, rows of one head do.
    const std::int64_t n_heads = args.shape.n_kv_heads;
    pool_of(exec).run(args.n_layers * n_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t piece = begin; piece < end; ++piece)
            for (std::int64_t i = 0; i < args.n_rows; ++i)
                args.shape.dtype == DType::F32 ? commit_row<std::uint32_t>(args, piece / n_heads, i, piece % n_heads)
                                               : commit_row<std::uint16_t>(args, piece / n_heads, i, piece % n_heads);
    });
}

}  // namespace slipstream::cpu
