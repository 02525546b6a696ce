// Packing takes eight bytes of a row at a time: with one code per byte, the pairs of four lanes are moved to their
// words by shifts. Unpacking follows the formula of the header, field by field, so that each checks the other.

#include "kernels/cuda/matmul/fragments.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cuda/matmul/block_parts.h"
#include "kernels/cuda/matmul/fragment_layout.h"

namespace slipstream::cuda {

namespace {

using std::byte;
using std::int64_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

static_assert(Q4KLayout::kBytes == 16 * 144 && Q5KLayout::kBytes == 16 * 176 && Q6KLayout::kBytes == 16 * 210 &&
              Q3KLayout::kBytes == 16 * 110);

template <typename T>
T load(const void* src) {
    T value;
    std::memcpy(&value, src, sizeof(T));
    return value;
}
template <typename T>
void store(byte* dst, T value) {
    std::memcpy(dst, &value, sizeof(T));
}

struct HighPlane {  // bits of codes above the lowest four (Q3_K: two)
    int bits = 0;
    int offset = 0;
};
struct BlockLayout {  // packed layout of types with blocks of 256
    int low_bits = 4;
    HighPlane high;
    int d = -1;  // byte offset of d; -1: d is in the scales
    int bytes = 0;
};
BlockLayout block_layout(DType type) {
    switch (type) {
        case DType::Q4_K:
            return {4, {}, -1, Q4KLayout::kBytes};
        case DType::Q5_K:
            return {4, {1, Q5KLayout::kHigh}, -1, Q5KLayout::kBytes};
        case DType::Q6_K:
            return {4, {2, Q6KLayout::kHigh}, Q6KLayout::kD, Q6KLayout::kBytes};
        default:
            return {2, {1, Q3KLayout::kHigh}, Q3KLayout::kD, Q3KLayout::kBytes};
    }
}

/// Byte offsets of the fields of a type with blocks of 32, in a row group with n blocks; -1: no such field.
struct GroupLayout {
    int64_t n = 0;
    int bits = 4;  // bits of a code in the first plane
    int64_t d = 0;
    int64_t m = -1;
    int64_t high = -1;
    bool is_exponent = false;  // whether d is a byte
};
GroupLayout group_layout(DType type, int64_t n) {
    GroupLayout out{.n = n, .bits = type == DType::Q8_0 ? 8 : 4, .is_exponent = type == DType::MXFP4};
    out.d = n * (type == DType::Q8_0 ? kBlock32ByteBytes : kBlock32NibbleBytes);
    int64_t next = out.d + n * kPairedScaleBytes;
    if (type == DType::Q4_1 || type == DType::Q5_1) {
        out.m = next;
        next += n * kPairedScaleBytes;
    }
    if (type == DType::Q5_0 || type == DType::Q5_1) out.high = next;
    return out;
}
/// Returns the byte offset, in a row group, of the codes that lane `lane` has of block b.
int64_t codes_of_block(const GroupLayout& layout, int64_t b, int lane) {
    if (layout.bits == 8) return b * kBlock32ByteBytes + lane * 16;
    if (b % 2 == 0 && b + 1 == layout.n) return b * kBlock32NibbleBytes + lane * 8;
    return b / 2 * kQuadBytes + lane * 16 + b % 2 * 8;
}

/// Returns the low byte in bits 0-7 and the high byte in bits 16-23.
uint32_t spread(uint64_t pair) {
    return static_cast<uint32_t>((pair & 0xffU) | (pair & 0xff00U) << 8);
}

/// Computes the words of lanes 4 g to 4 g + 3 for one step of 16 k: bits [shift, shift + bits) of the 16 codes at row_g
/// (row g) and at row_g8 (row g + 8). out[lane - 4 g] has two words if bits is 8, else one, whose fields begin at bit
/// 0.
template <int bits>
void step_words(const uint8_t* row_g, const uint8_t* row_g8, int shift, uint32_t (&out)[4][2]) {
    constexpr uint64_t kMask = 0x0101010101010101U * ((1U << bits) - 1);
    const uint64_t a = load<uint64_t>(row_g) >> shift & kMask;
    const uint64_t b = load<uint64_t>(row_g8) >> shift & kMask;
    const uint64_t c = load<uint64_t>(row_g + 8) >> shift & kMask;
    const uint64_t d = load<uint64_t>(row_g8 + 8) >> shift & kMask;
    if constexpr (bits <= 2) {
        const uint64_t all = a | b << bits | c << 2 * bits | d << 3 * bits;
        for (int j = 0; j < 4; ++j) out[j][0] = spread(all >> 16 * j);
    } else if constexpr (bits == 4) {
        const uint64_t first = a | b << 4;
        const uint64_t second = c | d << 4;
        for (int j = 0; j < 4; ++j) out[j][0] = spread(first >> 16 * j) | spread(second >> 16 * j) << 8;
    } else {
        for (int j = 0; j < 4; ++j) {
            out[j][0] = spread(a >> 16 * j) | spread(b >> 16 * j) << 8;
            out[j][1] = spread(c >> 16 * j) | spread(d >> 16 * j) << 8;
        }
    }
}

using Parts = BlockParts[kGroupRows];

/// Packs bits [shift, shift + bits) of the codes of a block of 256 k of 16 rows to [quad][32 lanes][4 words] at `dst`.
template <int bits>
void pack_plane(const Parts& parts, int shift, byte* dst) {
    constexpr int kStepsPerWord = 4 / bits;
    for (int g = 0; g < 8; ++g) {
        uint32_t words[4][16] = {};
        for (int step = 0; step < 16; ++step) {
            uint32_t out[4][2];
            step_words<bits>(parts[g].codes + 16 * step, parts[g + 8].codes + 16 * step, shift, out);
            for (int j = 0; j < 4; ++j)
                words[j][step / kStepsPerWord] |= out[j][0] << (4 * bits * (step % kStepsPerWord));
        }
        for (int j = 0; j < 4; ++j)
            for (int quad = 0; quad < bits; ++quad)
                std::memcpy(dst + quad * kQuadBytes + (4 * g + j) * 16, words[j] + 4 * quad, 16);
    }
}

/// Packs the scales of a block of 256 k of 16 rows, and d if it is a field of its own.
void pack_scales(DType type, const Parts& parts, byte* block) {
    for (int lane = 0; lane < 32; ++lane) {
        const BlockParts* const rows[2] = {&parts[lane / 4], &parts[lane / 4 + 8]};
        const int j = lane % 4;
        uint32_t low = 0;
        uint32_t high = 0;
        for (int r = 0; r < 2; ++r) {
            const BlockParts& p = *rows[r];
            if (type == DType::Q4_K || type == DType::Q5_K) {
                const uint32_t halves = p.d | static_cast<uint32_t>(p.m) << 16;
                const uint32_t word = p.scales[2 * j] | p.mins[2 * j] << 6 | p.scales[2 * j + 1] << 12 |
                                      p.mins[2 * j + 1] << 18 | (halves >> (8 * j) & 0xffU) << 24;
                const int at = type == DType::Q4_K ? Q4KLayout::kScales : Q5KLayout::kScales;
                store(block + at + lane * 8 + r * 4, word);
                continue;
            }
            for (int i = 0; i < 4; ++i) {
                const uint8_t scale = p.scales[4 * j + i];
                if (type == DType::Q6_K) store(block + Q6KLayout::kScales + lane * 8 + 2 * i + r, scale);
                low |= (scale & 15U) << (4 * (2 * i + r));
                high |= (scale >> 4 & 3U) << (2 * (2 * i + r));
            }
        }
        if (type != DType::Q3_K) continue;
        store(block + Q3KLayout::kScaleLow + lane * 4, low);
        store(block + Q3KLayout::kScaleHigh + lane * 2, static_cast<uint16_t>(high));
    }
    const int d = block_layout(type).d;
    for (int g = 0; g < 8 && d >= 0; ++g)
        store(block + d + g * 4, parts[g].d | static_cast<uint32_t>(parts[g + 8].d) << 16);
}

void pack_block_256(DType type, const Parts& parts, byte* block) {
    const BlockLayout layout = block_layout(type);
    if (layout.low_bits == 4) {
        pack_plane<4>(parts, 0, block);
    } else {
        pack_plane<2>(parts, 0, block);
    }
    if (layout.high.bits == 1) pack_plane<1>(parts, layout.low_bits, block + layout.high.offset);
    if (layout.high.bits == 2) pack_plane<2>(parts, layout.low_bits, block + layout.high.offset);
    pack_scales(type, parts, block);
}

void pack_block_32(const GroupLayout& layout, const Parts& parts, int64_t b, byte* group) {
    for (int g = 0; g < 8; ++g) {
        const BlockParts& p = parts[g];
        const BlockParts& q = parts[g + 8];
        uint32_t high[4] = {};
        for (int step = 0; step < 2; ++step) {
            uint32_t out[4][2];
            const uint8_t* row_g = p.codes + 16 * step;
            const uint8_t* row_g8 = q.codes + 16 * step;
            if (layout.bits == 8) {
                step_words<8>(row_g, row_g8, 0, out);
            } else {
                step_words<4>(row_g, row_g8, 0, out);
            }
            const int words = layout.bits / 4;
            for (int j = 0; j < 4; ++j)
                std::memcpy(group + codes_of_block(layout, b, 4 * g + j) + 4 * words * step, out[j],
                            static_cast<size_t>(4 * words));
            if (layout.high < 0) continue;
            step_words<1>(row_g, row_g8, 4, out);
            for (int j = 0; j < 4; ++j) high[j] |= out[j][0] << (4 * step);
        }
        for (int j = 0; j < 4 && layout.high >= 0; ++j)
            store(group + layout.high + b * kBlock32HighBytes + (4 * g + j) * 2,
                  static_cast<uint16_t>(high[j] | high[j] >> 8));
        if (layout.is_exponent) {
            store(group + layout.d + b * kPairedExponentBytes + g * 2, static_cast<uint16_t>(p.d | q.d << 8));
            continue;
        }
        store(group + layout.d + b * kPairedScaleBytes + g * 4, p.d | static_cast<uint32_t>(q.d) << 16);
        if (layout.m >= 0)
            store(group + layout.m + b * kPairedScaleBytes + g * 4, p.m | static_cast<uint32_t>(q.m) << 16);
    }
}

void pack_blocks(const FileRows& rows, int n_rows, const byte* first, byte* group) {
    const DTypeInfo& info = dtype_info(rows.dtype);
    const int64_t n = rows.k / info.block_elements;
    const GroupLayout layout = group_layout(rows.dtype, n);
    Parts parts{};  // rows past the last one stay zeros
    for (int64_t b = 0; b < n; ++b) {
        for (int r = 0; r < n_rows; ++r)
            read_block(rows.dtype, first + r * rows.stride_bytes + b * info.block_bytes, parts[r]);
        if (info.block_elements == 256) {
            pack_block_256(rows.dtype, parts, group + b * info.block_bytes * kGroupRows);
        } else {
            pack_block_32(layout, parts, b, group);
        }
    }
}

/// Packs rows of a 16-bit float type: whole steps as fragments, the rest row by row.
void pack_halves(const FileRows& rows, int n_rows, const byte* first, byte* group) {
    const int64_t n_steps = rows.k / kStepK;
    for (int64_t step = 0; step < n_steps; ++step, group += kFloatStepBytes) {
        uint32_t row[kGroupRows][8] = {};
        for (int r = 0; r < n_rows; ++r) std::memcpy(row[r], first + r * rows.stride_bytes + step * kStepK * 2, 32);
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4;
            const int j = lane % 4;
            const uint32_t words[4] = {row[g][j], row[g + 8][j], row[g][j + 4], row[g + 8][j + 4]};
            std::memcpy(group + lane * 16, words, 16);
        }
    }
    const auto rest = static_cast<size_t>(rows.k % kStepK * 2);
    std::memset(group, 0, kGroupRows * rest);
    for (int r = 0; r < n_rows; ++r)
        std::memcpy(group + r * rest, first + r * rows.stride_bytes + n_steps * kStepK * 2, rest);
}

void pack_floats(const FileRows& rows, int n_rows, const byte* first, byte* group) {
    const size_t bytes = row_bytes(DType::F32, rows.k);
    for (int r = 0; r < kGroupRows; ++r) {
        byte* dst = group + r * bytes;
        if (r < n_rows) {
            std::memcpy(dst, first + r * rows.stride_bytes, bytes);
        } else {
            std::memset(dst, 0, bytes);
        }
    }
}

/// Place, in fragment order (fragments.h), of the weight in row `row` (0 to 15) and at k = i of a step of 16 k: lane,
/// pair, and which of the pair.
struct FieldPlace {
    int lane;
    int h;       // pair of weights within the lane, 0 to 3
    int second;  // 1: the weight is the second of the pair, the one at odd k; 0: the first
};
FieldPlace field_place(int row, int i) {
    return {row % 8 * 4 + i % 8 / 2, row / 8 + i / 8 * 2, i % 2};
}

/// Returns the `bits` bits that the weight at place `at` of step `step` (16 k) has in a plane of bits. `words`: the
/// words of its lane: word w is at words + (w / 4) * quad_bytes + (w % 4) * 4.
int field(const byte* words, int64_t quad_bytes, int bits, int step, const FieldPlace& at) {
    const int number = 4 * step + at.h;
    const int per_half = 16 / bits;
    const int word = number / per_half;
    const auto value = load<uint32_t>(words + word / 4 * quad_bytes + word % 4 * 4);
    return static_cast<int>(value >> (bits * (number % per_half) + 16 * at.second) & ((1U << bits) - 1));
}

void unpack_scales(DType type, const byte* block, int row, BlockParts& parts) {
    const int g = row % 8;
    const int r = row / 8;
    uint32_t halves = 0;
    for (int j = 0; j < 4; ++j) {
        const int lane = 4 * g + j;
        if (type == DType::Q4_K || type == DType::Q5_K) {
            const int at = type == DType::Q4_K ? Q4KLayout::kScales : Q5KLayout::kScales;
            const auto word = load<uint32_t>(block + at + lane * 8 + r * 4);
            for (int i = 0; i < 2; ++i) {
                parts.scales[2 * j + i] = word >> (12 * i) & 63U;
                parts.mins[2 * j + i] = word >> (12 * i + 6) & 63U;
            }
            halves |= word >> 24 << (8 * j);
            continue;
        }
        for (int i = 0; i < 4; ++i) {
            if (type == DType::Q6_K) {
                parts.scales[4 * j + i] = load<uint8_t>(block + Q6KLayout::kScales + lane * 8 + 2 * i + r);
                continue;
            }
            const auto low = load<uint32_t>(block + Q3KLayout::kScaleLow + lane * 4);
            const auto high = load<uint16_t>(block + Q3KLayout::kScaleHigh + lane * 2);
            parts.scales[4 * j + i] =
                static_cast<uint8_t>((low >> (4 * (2 * i + r)) & 15U) | (high >> (2 * (2 * i + r)) & 3U) << 4);
        }
    }
    const int d = block_layout(type).d;
    parts.d = static_cast<uint16_t>(d < 0 ? halves : load<uint32_t>(block + d + g * 4) >> (16 * r));
    parts.m = static_cast<uint16_t>(halves >> 16);
}

void unpack_block_256(DType type, const byte* block, int row, BlockParts& parts) {
    const BlockLayout layout = block_layout(type);
    for (int i = 0; i < 256; ++i) {
        const FieldPlace at = field_place(row, i % 16);
        int code = field(block + at.lane * 16, kQuadBytes, layout.low_bits, i / 16, at);
        if (layout.high.bits > 0)
            code |= field(block + layout.high.offset + at.lane * 16, kQuadBytes, layout.high.bits, i / 16, at)
                    << layout.low_bits;
        parts.codes[i] = static_cast<uint8_t>(code);
    }
    unpack_scales(type, block, row, parts);
}

void unpack_block_32(const GroupLayout& layout, const byte* group, int row, int64_t b, BlockParts& parts) {
    for (int i = 0; i < 32; ++i) {
        const FieldPlace at = field_place(row, i % 16);
        int code = field(group + codes_of_block(layout, b, at.lane), 0, layout.bits, i / 16, at);
        if (layout.high >= 0) {
            const auto bits = load<uint16_t>(group + layout.high + b * kBlock32HighBytes + at.lane * 2);
            code |= (bits >> (8 * at.second + 4 * (i / 16) + at.h) & 1) << 4;
        }
        parts.codes[i] = static_cast<uint8_t>(code);
    }
    if (layout.is_exponent) {
        parts.d = load<uint8_t>(group + layout.d + b * kPairedExponentBytes + row % 8 * 2 + row / 8);
        return;
    }
    const int64_t scale = b * kPairedScaleBytes + row % 8 * 4 + row / 8 * 2;
    parts.d = load<uint16_t>(group + layout.d + scale);
    if (layout.m >= 0) parts.m = load<uint16_t>(group + layout.m + scale);
}

void unpack_half_row(const byte* group, int row, int64_t k, byte* dst) {
    const int64_t n_steps = k / kStepK;
    for (int64_t i = 0; i < k; ++i, dst += 2) {
        const FieldPlace at = field_place(row, static_cast<int>(i % kStepK));
        const byte* from = i / kStepK < n_steps
                               ? group + i / kStepK * kFloatStepBytes + at.lane * 16 + at.h * 4 + at.second * 2
                               : group + n_steps * kFloatStepBytes + (row * (k % kStepK) + i % kStepK) * 2;
        std::memcpy(dst, from, 2);
    }
}

}  // namespace

void pack_fragments(const FileRows& rows, int64_t begin, int64_t end, byte* packed) {
    const size_t group_bytes = kGroupRows * row_bytes(rows.dtype, rows.k);
    CHECK(begin >= 0 && begin <= end && (end - 1) * kGroupRows < rows.n_rows, "groups [{}, {}) of {} rows", begin, end,
          rows.n_rows);
    for (int64_t i = begin; i < end; ++i) {
        const byte* first = rows.data + i * kGroupRows * rows.stride_bytes;
        byte* group = packed + i * group_bytes;
        const int n_rows = static_cast<int>(std::min<int64_t>(kGroupRows, rows.n_rows - i * kGroupRows));
        if (rows.dtype == DType::F32) {
            pack_floats(rows, n_rows, first, group);
        } else if (!is_quantized(rows.dtype)) {
            pack_halves(rows, n_rows, first, group);
        } else {
            pack_blocks(rows, n_rows, first, group);
        }
    }
}

void unpack_fragment_row(DType type, const byte* group, int row, int64_t k, byte* dst) {
    CHECK(row >= 0 && row < kGroupRows, "row {} of a group", row);
    if (type == DType::F32) {
        const size_t bytes = row_bytes(type, k);
        std::memcpy(dst, group + row * bytes, bytes);
        return;
    }
    if (!is_quantized(type)) return unpack_half_row(group, row, k, dst);
    const DTypeInfo& info = dtype_info(type);
    const int64_t n = k / info.block_elements;
    const GroupLayout layout = group_layout(type, n);
    for (int64_t b = 0; b < n; ++b, dst += info.block_bytes) {
        BlockParts parts{};
        if (info.block_elements == 256) {
            unpack_block_256(type, group + b * info.block_bytes * kGroupRows, row, parts);
        } else {
            unpack_block_32(layout, group, row, b, parts);
        }
        write_block(type, parts, dst);
    }
}

}  // namespace slipstream::cuda
