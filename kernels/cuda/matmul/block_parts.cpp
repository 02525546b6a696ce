#include "kernels/cuda/matmul/block_parts.h"

#include <cstring>

#include "kernels/base/check.h"

namespace slipstream::cuda {

namespace {

using std::uint8_t;

// Byte offsets of a block's fields; -1: the type has no such field.
struct Fields {
    int d;
    int m;
    int scales;
    int high;  // offset of the upper bits of codes, if these are stored apart
    int low;
};
constexpr Fields fields(DType type) {
    switch (type) {
        case DType::Q8_0:
        case DType::Q4_0:
        case DType::IQ4_NL:
            return {0, -1, -1, -1, 2};
        case DType::MXFP4:
            return {0, -1, -1, -1, 1};
        case DType::Q4_1:
            return {0, 2, -1, -1, 4};
        case DType::Q5_0:
            return {0, -1, -1, 2, 6};
        case DType::Q5_1:
            return {0, 2, -1, 4, 8};
        case DType::Q3_K:
            return {108, -1, 96, 0, 32};
        case DType::Q4_K:
            return {0, 2, 4, -1, 16};
        case DType::Q5_K:
            return {0, 2, 4, 16, 48};
        case DType::Q6_K:
            return {208, -1, 192, 128, 0};
        default:
            return {-1, -1, -1, -1, -1};
    }
}

/// Returns the bytes of the scale field d of a block: 1 for MXFP4 (an exponent), else 2 (a binary16 number).
constexpr int d_bytes(DType type) {
    return type == DType::MXFP4 ? 1 : 2;
}

/// Place of weight i of group `group` of 32 in a block of a K format: byte and shift of its low bits and of its high
/// bits.
struct Place {
    int low_byte, low_shift, high_byte, high_shift;
};
template <DType type>
constexpr Place place(int group, int i) {
    if constexpr (type == DType::Q3_K) return {32 * (group / 4) + i, 2 * (group % 4), i, group};
    if constexpr (type == DType::Q6_K) {
        const int half = group / 4;
        const int part = group % 4;
        return {64 * half + 32 * (part % 2) + i, 4 * (part / 2), 32 * half + i, 2 * part};
    }
    return {32 * (group / 2) + i, 4 * (group % 2), i, group};  // Q4_K, Q5_K
}
template <DType type>
inline constexpr int kLowBits = type == DType::Q3_K ? 2 : 4;
template <DType type>
inline constexpr int kHighBits = type == DType::Q4_K   ? 0
                                 : type == DType::Q6_K ? 2
                                                       : 1;

template <DType type>
void read_k_codes(const uint8_t* block, uint8_t* codes) {
    constexpr Fields kFields = fields(type);
    for (int group = 0; group < 8; ++group)
        for (int i = 0; i < 32; ++i) {
            const Place at = place<type>(group, i);
            int code = block[kFields.low + at.low_byte] >> at.low_shift & ((1 << kLowBits<type>)-1);
            if constexpr (kHighBits < type >> 0)
                code |= (block[kFields.high + at.high_byte] >> at.high_shift & ((1 << kHighBits<type>)-1))
                        << kLowBits<type>;
            codes[32 * group + i] = static_cast<uint8_t>(code);
        }
}

template <DType type>
void write_k_codes(const uint8_t* codes, uint8_t* block) {
    constexpr Fields kFields = fields(type);
    for (int group = 0; group < 8; ++group)
        for (int i = 0; i < 32; ++i) {
            const Place at = place<type>(group, i);
            const int code = codes[32 * group + i];
            block[kFields.low + at.low_byte] |=
                static_cast<uint8_t>((code & ((1 << kLowBits<type>)-1)) << at.low_shift);
            if constexpr (kHighBits < type >> 0)
                block[kFields.high + at.high_byte] |= static_cast<uint8_t>(code >> kLowBits<type> << at.high_shift);
        }
}

/// Reads the 32 codes of a block of 32 weights into codes[32]: byte i of `low` has weight i (low nibble) and weight i +
/// 16; bit i of the 32 bits at `high` is bit 4 of weight i. `high` is null if the type has no fifth bit.
void read_nibbles(const uint8_t* low, const uint8_t* high, uint8_t* codes) {
    for (int i = 0; i < 16; ++i) {
        codes[i] = low[i] & 15U;
        codes[i + 16] = low[i] >> 4;
    }
    if (high == nullptr) return;
    for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((high[i / 8] >> (i % 8) & 1) << 4);
}
void write_nibbles(const uint8_t* codes, uint8_t* low, uint8_t* high) {
    for (int i = 0; i < 16; ++i) low[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
    if (high == nullptr) return;
    for (int i = 0; i < 32; ++i) high[i / 8] |= static_cast<uint8_t>((codes[i] >> 4) << (i % 8));
}

/// Unpacks the 12 bytes of scales and minimums of a Q4_K or Q5_K block to parts.scales and parts.mins; layout:
/// unpack_scales_and_mins() (kernels/cpu/matmul/block_fields.h).
void read_scales_and_mins(const uint8_t* packed, BlockParts& parts) {
    for (int i = 0; i < 4; ++i) {
        parts.scales[i] = packed[i] & 63U;
        parts.mins[i] = packed[4 + i] & 63U;
        parts.scales[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | packed[i] >> 6 << 4);
        parts.mins[4 + i] = static_cast<uint8_t>(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
    }
}
void write_scales_and_mins(const BlockParts& parts, uint8_t* packed) {
    for (int i = 0; i < 4; ++i) {
        packed[i] = static_cast<uint8_t>(parts.scales[i] | parts.scales[4 + i] >> 4 << 6);
        packed[4 + i] = static_cast<uint8_t>(parts.mins[i] | parts.mins[4 + i] >> 4 << 6);
        packed[8 + i] = static_cast<uint8_t>((parts.scales[4 + i] & 15) | (parts.mins[4 + i] & 15) << 4);
    }
}

/// Unpacks the 12 bytes of scales of a Q3_K block to scales[16], from which write_q3_scales() packs them; layout:
/// unpack_q3_scales() (kernels/cpu/matmul/block_fields.h).
void read_q3_scales(const uint8_t* packed, uint8_t* scales) {
    for (int i = 0; i < 16; ++i)
        scales[i] =
            static_cast<uint8_t>((packed[i % 8] >> (4 * (i / 8)) & 15) | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4);
}
void write_q3_scales(const uint8_t* scales, uint8_t* packed) {
    for (int i = 0; i < 16; ++i) {
        packed[i % 8] |= static_cast<uint8_t>((scales[i] & 15) << (4 * (i / 8)));
        packed[8 + i % 4] |= static_cast<uint8_t>(scales[i] >> 4 << (2 * (i / 4)));
    }
}

}  // namespace

void read_block(DType type, const std::byte* block, BlockParts& parts) {
    const auto* from = reinterpret_cast<const uint8_t*>(block);
    const Fields at = fields(type);
    CHECK(at.d >= 0, "blocks of {}", dtype_name(type));
    parts.d = 0;
    std::memcpy(&parts.d, from + at.d, d_bytes(type));
    if (at.m >= 0) std::memcpy(&parts.m, from + at.m, 2);
    const uint8_t* high = at.high >= 0 ? from + at.high : nullptr;
    switch (type) {
        case DType::Q8_0:
            std::memcpy(parts.codes, from + at.low, 32);
            return;
        case DType::Q3_K:
            read_q3_scales(from + at.scales, parts.scales);
            return read_k_codes<DType::Q3_K>(from, parts.codes);
        case DType::Q4_K:
            read_scales_and_mins(from + at.scales, parts);
            return read_k_codes<DType::Q4_K>(from, parts.codes);
        case DType::Q5_K:
            read_scales_and_mins(from + at.scales, parts);
            return read_k_codes<DType::Q5_K>(from, parts.codes);
        case DType::Q6_K:
            std::memcpy(parts.scales, from + at.scales, 16);
            return read_k_codes<DType::Q6_K>(from, parts.codes);
        default:
            return read_nibbles(from + at.low, high, parts.codes);
    }
}

void write_block(DType type, const BlockParts& parts, std::byte* block) {
    auto* to = reinterpret_cast<uint8_t*>(block);
    const Fields at = fields(type);
    CHECK(at.d >= 0, "blocks of {}", dtype_name(type));
    std::memset(to, 0, dtype_info(type).block_bytes);
    std::memcpy(to + at.d, &parts.d, d_bytes(type));
    if (at.m >= 0) std::memcpy(to + at.m, &parts.m, 2);
    uint8_t* high = at.high >= 0 ? to + at.high : nullptr;
    switch (type) {
        case DType::Q8_0:
            std::memcpy(to + at.low, parts.codes, 32);
            return;
        case DType::Q3_K:
            write_q3_scales(parts.scales, to + at.scales);
            return write_k_codes<DType::Q3_K>(parts.codes, to);
        case DType::Q4_K:
            write_scales_and_mins(parts, to + at.scales);
            return write_k_codes<DType::Q4_K>(parts.codes, to);
        case DType::Q5_K:
            write_scales_and_mins(parts, to + at.scales);
            return write_k_codes<DType::Q5_K>(parts.codes, to);
        case DType::Q6_K:
            std::memcpy(to + at.scales, parts.scales, 16);
            return write_k_codes<DType::Q6_K>(parts.codes, to);
        default:
            return write_nibbles(parts.codes, to + at.low, high);
    }
}

}  // namespace slipstream::cuda
