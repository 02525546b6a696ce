// How a matmul over interleaved weights is cut, and what memory that takes: tiles of tokens, groups of rows that go
// over K together, laid out activations, a thread's scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

inline constexpr int kLanes = static_cast<int>(kInterleavedRows);
inline constexpr std::int64_t kStreamTokens = 32;  // up to here memory is what a pass waits for
inline constexpr std::int64_t kGroupsAtOnce = 4;   // beyond; 4 unpacked chunks: 24 KB of L1
inline constexpr std::int64_t kPassTokens = 512;   // tokens whose sums are kept at once: 4 x 512 x 128 bytes of L2
/// Smaller matrices may well lie in a cache, where a group alone would wait for its own sums.
inline constexpr std::int64_t kCachedBytes = 2 << 20;

/// What a type's weights are multiplied with.
enum class Operand : std::uint8_t {
    Floats,
    Pairs,  // of bfloat16
    Codes,  // of 8 bits
};

inline Operand operand_of(const InterleavedForm& form, DType type) {
    if (is_quantized(type)) return Operand::Codes;
    return type == DType::BF16 && form.round_pairs != nullptr ? Operand::Pairs : Operand::Floats;
}

inline int tile_tokens_of(const InterleavedForm& form, Operand operand) {
    return operand == Operand::Codes   ? form.code_tile_tokens
           : operand == Operand::Pairs ? form.pair_tile_tokens
                                       : form.float_tile_tokens;
}

/// Elements that a kernel for few tokens goes over at once: a block of the K formats, else so many that lines are
/// whole.
constexpr std::int64_t few_tokens_step(DType type) {
    return type >= DType::Q3_K ? 256 : 64;
}

/// The kernel for few tokens of a call, or null.
inline InterleavedForm::CodeFn few_tokens_kernel(const InterleavedForm& form, DType type, std::int64_t n_tokens,
                                                 std::int64_t k) {
    if (n_tokens < 1 || n_tokens > kMostFewTokens || k < few_tokens_step(type)) return nullptr;
    return form.multiply_few[static_cast<std::size_t>(type)][static_cast<std::size_t>(n_tokens - 1)];
}

inline bool multiplied_where_they_lie(const InterleavedForm& form, DType type, std::int64_t n_tokens) {
    return is_quantized(type) && n_tokens <= form.most_packed_tokens[static_cast<std::size_t>(type)];
}

/// Elements of K that a kernel goes over at once. Of quantised weights one chunk is unpacked at once; where nothing is,
/// it may be more.
inline std::int64_t chunk_elements_of(const InterleavedForm& form, DType type, std::int64_t n_tokens, std::int64_t k) {
    if (few_tokens_kernel(form, type, n_tokens, k) != nullptr) return k / few_tokens_step(type) * few_tokens_step(type);
    if (!multiplied_where_they_lie(form, type, n_tokens) || n_tokens > kStreamTokens) return kChunkElements;
    // One tile of 8-bit codes waits for memory, and is better fetched by short chunks.
    const bool short_chunks = type == DType::Q8_0 && n_tokens <= form.packed_one_tile;
    return short_chunks ? kChunkElements : form.packed_chunk_elements;
}

inline Streams streams_of(const InterleavedForm& form, Operand operand) {
    return operand == Operand::Codes ? form.code_streams : operand == Operand::Pairs ? form.pair_streams : Streams{};
}

/// Whether one group goes alone.
inline bool in_one_stream(const InterleavedForm& form, Operand operand, std::int64_t n_tokens,
                          std::int64_t matrix_bytes) {
    return n_tokens <= streams_of(form, operand).most_tokens_of_one && matrix_bytes > kCachedBytes;
}

/// Groups that go over K together where there are enough rows, if not one alone; codes of few tokens: or more.
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

inline std::int64_t laid_out_bytes_per_token(Operand operand, std::int64_t k) {
    if (operand == Operand::Codes) return k / 32 * kBlockBytesPerToken;
    return operand == Operand::Pairs ? ceil_div<std::int64_t>(k, 2) * kPairBytes
                                     : k * static_cast<std::int64_t>(sizeof(float));
}

inline std::size_t laid_out_bytes(Operand operand, std::int64_t n_tokens, std::int64_t k) {
    const bool in_place = operand == Operand::Floats && n_tokens == 1;
    return in_place ? 0 : static_cast<std::size_t>(n_tokens * laid_out_bytes_per_token(operand, k));
}

/// A thread's scratch: unpacked chunks, then rows interleaved here, then sums.
struct ThreadScratch {
    std::size_t rows_offset;
    std::size_t sums_offset;
    std::size_t bytes;

    ThreadScratch(const InterleavedForm& form, DType type, Layout layout, std::int64_t n_tokens, std::int64_t k,
                  std::int64_t n_groups) {
        const Operand operand = operand_of(form, type);
        const auto groups = static_cast<std::size_t>(n_groups);
        const auto sums =
            static_cast<std::size_t>(std::min(n_tokens, kPassTokens + kMaxTileTokens) * kLanes);  // of a group
        rows_offset = operand == Operand::Codes ? groups * sizeof(UnpackedChunk) : 0;
        sums_offset = rows_offset;
        if (layout == Layout::RowMajor)
            sums_offset += round_up<std::size_t>(groups * static_cast<std::size_t>(kLanes) * row_bytes(type, k), 64);
        bytes = sums_offset + groups * sums * sizeof(float);
    }
};

}  // namespace slipstream::cpu
