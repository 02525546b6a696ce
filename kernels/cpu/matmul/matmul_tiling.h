// How a matmul over interleaved weights is divided, and how much memory that takes: tiles of tokens, row groups that go
// over K together, laid out activations, scratch of a thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

/// Rows of a row group, 16; in a 512-bit vector each has a lane of 32 bits.
inline constexpr int kLanes = static_cast<int>(kInterleavedRows);
/// Most tokens of a call that is limited by memory bandwidth; larger calls are divided differently.
inline constexpr std::int64_t kStreamTokens = 32;
/// Row groups that go over K together, at least, in calls of more than kStreamTokens tokens: 4 unpacked K slices take
/// 24 KB of L1.
inline constexpr std::int64_t kGroupsAtOnce = 4;
/// Most tokens whose sums a thread keeps at once: the sums of 4 row groups x 512 tokens x 64 bytes take 128 KB of L2.
inline constexpr std::int64_t kPassTokens = 512;
/// Packed bytes up to which a matrix may well be in a cache. A row group that goes over K alone would then wait for its
/// own sums instead of for memory, so in matrices up to this size several always go together.
inline constexpr std::int64_t kCachedBytes = 2 << 20;

/// What weights are multiplied with, depending on their type and the kernel variant.
enum class Operand : std::uint8_t {
    Floats,  // activations as they are
    Pairs,   // pairs of activations rounded to bfloat16
    Codes,   // activations rounded to 8 bits
};

/// Returns what weights of `type` are multiplied with by the kernels of `form`.
inline Operand operand_of(const InterleavedForm& form, DType type) {
    if (is_quantized(type)) return Operand::Codes;
    return type == DType::BF16 && form.round_pairs != nullptr ? Operand::Pairs : Operand::Floats;
}

/// Returns the most tokens of a tile for kernels that multiply with `operand`.
inline int tile_tokens_of(const InterleavedForm& form, Operand operand) {
    return operand == Operand::Codes   ? form.code_tile_tokens
           : operand == Operand::Pairs ? form.pair_tile_tokens
                                       : form.float_tile_tokens;
}

/// Returns the elements of K that a kernel for few tokens processes per step: a quantisation block of the K formats,
/// else 64, so that a step of a row group is a whole number of cache lines.
constexpr std::int64_t few_tokens_step(DType type) {
    return code_traits(type).activation_run == 256 ? 256 : 64;
}

/// Returns the kernel for few tokens (at most kMostFewTokens) that a call of these sizes uses, or null if it uses none.
inline InterleavedForm::CodeFn few_tokens_kernel(const InterleavedForm& form, DType type, std::int64_t n_tokens,
                                                 std::int64_t k) {
    if (n_tokens < 1 || n_tokens > kMostFewTokens || k < few_tokens_step(type)) return nullptr;
    return form.multiply_few[static_cast<std::size_t>(type)][n_tokens - 1];
}

/// Whether codes are multiplied directly from the packed weights, and not unpacked into memory first.
inline bool multiplied_where_they_lie(const InterleavedForm& form, DType type, std::int64_t n_tokens) {
    return is_quantized(type) && n_tokens <= form.most_packed_tokens[static_cast<std::size_t>(type)];
}

/// Returns the number of elements in a K slice, the range of K that a kernel processes per call. If quantised weights
/// are unpacked into memory, a K slice is one UnpackedChunk; if they are not, it may be longer.
inline std::int64_t chunk_elements_of(const InterleavedForm& form, DType type, std::int64_t n_tokens, std::int64_t k) {
    if (few_tokens_kernel(form, type, n_tokens, k) != nullptr) return k / few_tokens_step(type) * few_tokens_step(type);
    if (!multiplied_where_they_lie(form, type, n_tokens) || n_tokens > kStreamTokens) return kChunkElements;
    // A call of one tile of 8-bit codes is limited by memory bandwidth, and reads faster with short K slices.
    const bool short_chunks = type == DType::Q8_0 && n_tokens <= form.packed_one_tile;
    return short_chunks ? kChunkElements : form.packed_chunk_elements;
}

/// Returns the settings for streams and prefetch of kernels that multiply with `operand`; defaults for floats.
inline Streams streams_of(const InterleavedForm& form, Operand operand) {
    return operand == Operand::Codes ? form.code_streams : operand == Operand::Pairs ? form.pair_streams : Streams{};
}

/// Whether row groups (16 rows each) go over K one at a time, instead of several together. `matrix_bytes`: packed bytes
/// of all rows.
inline bool in_one_stream(const InterleavedForm& form, Operand operand, std::int64_t n_tokens,
                          std::int64_t matrix_bytes) {
    return n_tokens <= streams_of(form, operand).most_tokens_of_one && matrix_bytes > kCachedBytes;
}

/// Returns the most row groups (16 rows each) that go over K together, if there are enough rows and in_one_stream() is
/// false. For codes of few tokens it also covers few_tokens_streams().
inline std::int64_t most_groups(const InterleavedForm& form, Operand operand, std::int64_t n_tokens) {
    const std::int64_t n_tiles = ceil_div<std::int64_t>(n_tokens, tile_tokens_of(form, operand));
    const auto widest_tile = static_cast<std::size_t>(ceil_div(n_tokens, n_tiles));
    const int of_codes =
        n_tokens <= kMostFewTokens ? std::max(form.code_groups, few_tokens_streams(n_tokens)) : form.code_groups;
    const std::int64_t in_registers = operand == Operand::Codes   ? of_codes
                                      : operand == Operand::Pairs ? form.pair_groups[widest_tile - 1]
                                                                  : form.float_groups[widest_tile - 1];
    return n_tokens <= kStreamTokens ? in_registers : std::max(in_registers, kGroupsAtOnce);
}

/// Returns the bytes of one token's activations, [k], in the layout of activations.h.
inline std::int64_t laid_out_bytes_per_token(Operand operand, std::int64_t k) {
    if (operand == Operand::Codes) return k / 32 * kBlockBytesPerToken;
    return operand == Operand::Pairs ? ceil_div<std::int64_t>(k, 2) * kPairBytes
                                     : k * static_cast<std::int64_t>(sizeof(float));
}

/// Returns the bytes of all laid out activations of a call; 0 if they are read in place (floats of one token).
inline std::size_t laid_out_bytes(Operand operand, std::int64_t n_tokens, std::int64_t k) {
    const bool in_place = operand == Operand::Floats && n_tokens == 1;
    return in_place ? 0 : static_cast<std::size_t>(n_tokens * laid_out_bytes_per_token(operand, k));
}

/// Layout of a thread's scratch: unpacked K slices (at 0; only for codes), then row groups that are interleaved on the
/// fly (only for row-major weights), then sums. Offsets and size in bytes.
struct ThreadScratch {
    std::size_t rows_offset;
    std::size_t sums_offset;
    std::size_t bytes;

    ThreadScratch(const InterleavedForm& form, DType type, Layout layout, std::int64_t n_tokens, std::int64_t k,
                  std::int64_t n_groups) {
        const Operand operand = operand_of(form, type);
        const auto groups = static_cast<std::size_t>(n_groups);
        const auto sums =
            static_cast<std::size_t>(std::min(n_tokens, kPassTokens + kMaxTileTokens) * kLanes);  // sums of a row group
        rows_offset = operand == Operand::Codes ? groups * sizeof(UnpackedChunk) : 0;
        sums_offset = rows_offset;
        if (layout == Layout::RowMajor) sums_offset += round_up<std::size_t>(groups * kLanes * row_bytes(type, k), 64);
        bytes = sums_offset + groups * sums * sizeof(float);
    }
};

}  // namespace slipstream::cpu
