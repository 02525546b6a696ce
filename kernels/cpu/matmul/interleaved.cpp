// Packing moves words: about one load and one store for every four bytes, from 16 source streams to one destination.

#include "kernels/cpu/matmul/interleaved.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/matmul/block_fields.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr int kRows = static_cast<int>(kInterleavedRows);
// Bytes of weights that a thread packs per task, but at least one row group.
constexpr std::int64_t kPieceBytes = 256 << 10;
constexpr std::uint32_t kSignBits = 0x80808080U;

// The BlockFields of each type, in the order of DType: number of 16-bit fields, their byte offsets in a block, byte
// offset of the 32-bit words, number of words. Offsets are those that dequantize.cpp documents; the notes say what the
// words hold.
constexpr std::array<BlockFields, kDTypeCount> kFields{{
    {},                    // F32
    {},                    // F16
    {},                    // BF16
    {1, {0}, 2, 8},        // Q8_0: the words of a block hold codes
    {1, {0}, 2, 4},        // Q4_0: the words of a block hold codes
    {2, {0, 2}, 4, 4},     // Q4_1: the words of a block hold codes
    {1, {0}, 2, 5},        // Q5_0: the words of a block hold high bits (h), then codes
    {2, {0, 2}, 4, 5},     // Q5_1: the words of a block hold high bits (h), then codes
    {1, {108}, 0, 27},     // Q3_K: the words of a block hold high bits (h), codes, scales; packed, scales come first
    {2, {0, 2}, 4, 35},    // Q4_K: the words of a block hold scales, then codes
    {2, {0, 2}, 4, 43},    // Q5_K: the words of a block hold scales, high bits (h), then codes
    {1, {208}, 0, 52},     // Q6_K: the words of a block hold low and high code bits, scales; packed in the order of use
    {1, {0}, 2, 4},        // IQ4_NL: the words of a block hold codes
    {0, {}, 1, 4, true},   // MXFP4: the words of a block hold codes
    {2, {0, 2}, 4, 33},    // IQ4_XS: the words of a block hold low bits of scales, then codes
    {2, {80, 82}, 0, 20},  // Q2_K: the words of a block hold scales, then codes
}};

/// Moves bit 4 g + j of h to bit 8 j + g, for j = 0 to 3 and g = 0 to 7, and returns the result.
std::uint32_t spread_high_bits(std::uint32_t h) {
    std::uint32_t out = 0;
    for (int j = 0; j < 4; ++j) {
        std::uint32_t bits = (h >> j) & 0x11111111U;  // every fourth bit; three steps move them together
        bits = (bits | bits >> 3) & 0x03030303U;
        bits = (bits | bits >> 6) & 0x000f000fU;
        bits = (bits | bits >> 12) & 0x000000ffU;
        out |= bits << (8 * j);
    }
    return out;
}

/// Moves bit 8 j + g of `spread` back to bit 4 g + j, for j = 0 to 3 and g = 0 to 7: the inverse of spread_high_bits().
std::uint32_t close_high_bits(std::uint32_t spread) {
    std::uint32_t out = 0;
    for (int i = 0; i < 32; ++i) out |= ((spread >> (8 * (i % 4) + i / 4)) & 1U) << i;
    return out;
}

/// Whether the type has a word of fifth bits of its codes, the first word of a block, whose bits are rearranged in
/// packed weights.
bool has_high_bits(DType type) {
    return type == DType::Q5_0 || type == DType::Q5_1;
}

/// Returns the index, in a packed block, of word `word` of the block in the file (interleaved.h).
int place_of_word(DType type, int word) {
    if (type == DType::Q3_K) return word < 24 ? word + 3 : word - 24;
    if (type != DType::Q6_K) return word;
    if (word >= 48) return word - 48;
    const bool is_high = word >= 32;
    const int half = is_high ? (word - 32) / 8 : word / 16;
    return 4 + 24 * half + 3 * (word % 8) + (is_high ? 2 : word / 8 % 2);
}

/// Whether words of a packed block are in another order than in the file.
bool moves_words(DType type) {
    return type == DType::Q3_K || type == DType::Q6_K;
}

/// Moves the `n_words` words of a block, [word][16 rows] at `words`, from their order in the file to their packed
/// places.
void move_words(DType type, int n_words, std::uint32_t* words) {
    constexpr int kMostWords = 52;
    std::uint32_t in_file[kMostWords][kRows];
    std::memcpy(in_file, words, n_words * sizeof(in_file[0]));
    for (int w = 0; w < n_words; ++w)
        std::memcpy(words + place_of_word(type, w) * kRows, in_file[w], sizeof(in_file[w]));
}

/// Transposes elements of T: dst[i][row] = src[row][i], `count` elements of `n_rows` rows. Goes by cache lines of each
/// row, through a tile on the stack: rows are often a power of two apart, and 16 such lines do not stay in L1 together.
template <typename T>
void interleave_elements(const std::byte* rows, std::size_t stride, int n_rows, std::int64_t count, std::byte* dst) {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    auto* out = reinterpret_cast<T*>(dst);
    std::int64_t i = 0;
    for (; i + kLine <= count; i += kLine, out += kLine * kRows, rows += 64) {
        T tile[kRows][kLine];
        for (int r = 0; r < n_rows; ++r) std::memcpy(tile[r], rows + r * stride, 64);
        for (int r = n_rows; r < kRows; ++r) std::memset(tile[r], 0, 64);
        for (std::int64_t j = 0; j < kLine; ++j)
            for (int r = 0; r < kRows; ++r) out[j * kRows + r] = tile[r][j];
    }
    for (; i < count; ++i, out += kRows, rows += sizeof(T))
        for (int r = 0; r < n_rows; ++r) out[r] = load_unaligned<T>(rows + r * stride);
}

void interleave_blocks(DType type, const std::byte* rows, std::size_t stride, int n_rows, std::int64_t k,
                       std::byte* dst) {
    const DTypeInfo& info = dtype_info(type);
    const BlockFields& fields = block_fields(type);
    for (std::int64_t i = 0; i < k; i += info.block_elements, rows += info.block_bytes) {
        if (fields.begins_with_byte) {
            interleave_elements<std::uint8_t>(rows, stride, n_rows, 1, dst);
            dst += kRows;
        }
        for (int f = 0; f < fields.n_halves; ++f, dst += kRows * 2)
            interleave_elements<std::uint16_t>(rows + fields.half_offset[f], stride, n_rows, 1, dst);
        interleave_elements<std::uint32_t>(rows + fields.words_offset, stride, n_rows, fields.n_words, dst);
        auto* words = reinterpret_cast<std::uint32_t*>(dst);
        if (type == DType::Q8_0)
            for (int j = 0; j < fields.n_words * kRows; ++j) words[j] ^= kSignBits;
        if (has_high_bits(type))
            for (int j = 0; j < kRows; ++j) words[j] = spread_high_bits(words[j]);
        if (moves_words(type)) move_words(type, fields.n_words, words);
        dst += fields.n_words * kRows * 4;
    }
}

}  // namespace

const BlockFields& block_fields(DType type) {
    return kFields[static_cast<std::size_t>(type)];
}

void interleave_rows(DType type, const std::byte* rows, std::size_t stride_bytes, int n_rows, std::int64_t k,
                     std::byte* group) {
    DCHECK(n_rows >= 1 && n_rows <= kRows);
    if (n_rows < kRows) std::memset(group, 0, kRows * row_bytes(type, k));
    switch (type) {
        case DType::F32:
            return interleave_elements<std::uint32_t>(rows, stride_bytes, n_rows, k, group);
        case DType::F16:
            return interleave_elements<std::uint16_t>(rows, stride_bytes, n_rows, k, group);
        case DType::BF16: {
            const std::int64_t pairs = k / 2;
            interleave_elements<std::uint32_t>(rows, stride_bytes, n_rows, pairs, group);
            return interleave_elements<std::uint16_t>(rows + 4 * pairs, stride_bytes, n_rows, k % 2,
                                                      group + pairs * kRows * 4);
        }
        default:
            return interleave_blocks(type, rows, stride_bytes, n_rows, k, group);
    }
}

void deinterleave_row(DType type, const std::byte* group, int row, std::int64_t k, std::byte* dst) {
    const auto take = [&](const std::byte* from, std::int64_t count, std::int64_t bytes) {
        for (std::int64_t i = 0; i < count; ++i, dst += bytes)
            std::memcpy(dst, from + (i * kRows + row) * bytes, bytes);
    };
    if (type == DType::F32) return take(group, k, 4);
    if (type == DType::F16) return take(group, k, 2);
    if (type == DType::BF16) {
        take(group, k / 2, 4);
        return take(group + k / 2 * kRows * 4, k % 2, 2);
    }
    const DTypeInfo& info = dtype_info(type);
    const BlockFields& fields = block_fields(type);
    for (std::int64_t i = 0; i < k; i += info.block_elements, dst += info.block_bytes) {
        if (fields.begins_with_byte) {
            dst[0] = group[row];
            group += kRows;
        }
        for (int f = 0; f < fields.n_halves; ++f, group += kRows * 2)
            std::memcpy(dst + fields.half_offset[f], group + row * 2, 2);
        for (int w = 0; w < fields.n_words; ++w) {
            auto word = load_unaligned<std::uint32_t>(group + (place_of_word(type, w) * kRows + row) * 4);
            if (type == DType::Q8_0) word ^= kSignBits;
            if (has_high_bits(type) && w == 0) word = close_high_bits(word);
            std::memcpy(dst + fields.words_offset + static_cast<std::size_t>(w) * 4, &word, 4);
        }
        group += fields.n_words * kRows * 4;
    }
}

void pack_weights(ExecRef exec, const PackWeightsArgs& args) {
    const ConstTensorView& from = args.weights;
    const std::int64_t m = from.shape[0];
    const std::int64_t k = from.shape[1];
    const std::size_t group_bytes = kRows * row_bytes(from.dtype, k);
    const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(group_bytes));
    static_cast<CpuDevice&>(exec.device)
        .pool()
        .run(ceil_div(m, kInterleavedRows), piece, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t group = begin; group < end; ++group)
                interleave_rows(from.dtype, from.row(group * kRows), from.row_stride_bytes,
                                static_cast<int>(std::min<std::int64_t>(kRows, m - group * kRows)), k,
                                args.packed.data + group * group_bytes);
        });
}

}  // namespace slipstream::cpu
