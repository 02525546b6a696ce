// The block formats of ggml (ggml/src/ggml-common.h), decoded one block at a time with plain loops. `d` and `m` are
// binary16; fields follow one another without padding, little-endian. Float operations have the order of the gguf
// Python package (gguf/quants.py), so that every bit matches; golden data: tests/golden/dequantize.

#include "kernels/cpu/matmul/dequantize.h"

#include <bit>

#include "kernels/base/check.h"
#include "kernels/base/code_tables.h"
#include "kernels/cpu/matmul/block_fields.h"

namespace slipstream::cpu {

namespace {

using std::byte;
using std::int64_t;

int u8(byte value) {
    return std::to_integer<int>(value);
}
int s8(byte value) {
    return static_cast<std::int8_t>(value);
}
int low_nibble(byte value) {
    return u8(value) & 15;
}
int high_nibble(byte value) {
    return u8(value) >> 4;
}

// Decodes a block of 32 weights. Fields and their bytes:
//   Q8_0   | d:2 | q:32 |                    w[i] = q[i] * d,  q signed
void decode_q8_0(const byte* block, float* out) {
    const float d = load_half(block);
    for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(s8(block[2 + i])) * d;
}

// Decodes a block of 32 weights. Fields and their bytes:
//   Q4_0   | d:2 | q:16 |                    byte i of q: low nibble weight i, high nibble weight i + 16
//                                            w = d * (q - 8)
void decode_q4_0(const byte* block, float* out) {
    const float d = load_half(block);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * static_cast<float>(low_nibble(block[2 + i]) - 8);
        out[i + 16] = d * static_cast<float>(high_nibble(block[2 + i]) - 8);
    }
}

// Decodes a block of 32 weights. Fields and their bytes:
//   Q4_1   | d:2 | m:2 | q:16 |              byte i of q: low nibble weight i, high nibble weight i + 16
//                                            w = d * q + m
void decode_q4_1(const byte* block, float* out) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * static_cast<float>(low_nibble(block[4 + i])) + m;
        out[i + 16] = d * static_cast<float>(high_nibble(block[4 + i])) + m;
    }
}

// Decodes a block of 32 weights. Fields and their bytes:
//   Q5_0   | d:2 | h:4 | q:16 |              byte i of q: low nibble weight i, high nibble weight i + 16
//                                            bit i of h: bit 4 of weight i;  w = d * ((q | h << 4) - 16)
void decode_q5_0(const byte* block, float* out) {
    const float d = load_half(block);
    const auto h = load_unaligned<std::uint32_t>(block + 2);
    for (int i = 0; i < 32; ++i) {
        const int low = i < 16 ? low_nibble(block[6 + i]) : high_nibble(block[6 + i - 16]);
        const int q = low | static_cast<int>((h >> i) & 1U) << 4;
        out[i] = d * static_cast<float>(q - 16);
    }
}

// Decodes a block of 32 weights. Fields and their bytes:
//   Q5_1   | d:2 | m:2 | h:4 | q:16 |        byte i of q: low nibble weight i, high nibble weight i + 16
//                                            bit i of h: bit 4 of weight i;  w = d * (q | h << 4) + m
void decode_q5_1(const byte* block, float* out) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    const auto h = load_unaligned<std::uint32_t>(block + 4);
    for (int i = 0; i < 32; ++i) {
        const int low = i < 16 ? low_nibble(block[8 + i]) : high_nibble(block[8 + i - 16]);
        const int q = low | static_cast<int>((h >> i) & 1U) << 4;
        out[i] = d * static_cast<float>(q) + m;
    }
}

// clang-format off
// Decodes a block. Fields and their bytes:
// Q3_K   | h:32 | q:64 | scales:12 | d:2 |   256 weights in 8 groups g of 32, a scale for each 16 weights
//   weight i of group g: q byte 32 (g / 4) + i, bits 2 (g % 4) and the next; if bit g of h[i] is set, 4 is not subtracted
//   w = d * (scale - 32) * (q2 - (h bit ? 0 : 4)),  scales: unpack_q3_scales()
// clang-format on
void decode_q3_k(const byte* block, float* out) {
    const byte* h = block;
    const byte* q = block + 32;
    std::uint8_t scales[16];
    unpack_q3_scales(block + 96, scales);
    const float d = load_half(block + 108);
    for (int g = 0; g < 8; ++g) {
        for (int i = 0; i < 32; ++i) {
            const float scale = d * static_cast<float>(scales[2 * g + i / 16] - 32);
            const int low = (u8(q[32 * (g / 4) + i]) >> (2 * (g % 4))) & 3;
            const int offset = ((u8(h[i]) >> g) & 1) != 0 ? 0 : 4;
            out[32 * g + i] = scale * static_cast<float>(low - offset);
        }
    }
}

// clang-format off
// Decodes a block of Q4_K (`h` null) or Q5_K. Fields and their bytes:
// Q4_K   | d:2 | dmin:2 | scales:12 | q:128 |   256 weights in 8 groups g of 32, a scale and a minimum for each group
//   weight i of group g: q byte 32 (g / 2) + i, low nibble for even g, high nibble for odd g
//   w = (d * scale) * q - (dmin * min),  6-bit scales and minimums: unpack_scales_and_mins()
// Q5_K   | d:2 | dmin:2 | scales:12 | h:32 | q:128 |   as Q4_K, and bit g of h[i] is bit 4 of weight i of group g
// clang-format on
void decode_q45_k(const byte* block, const byte* h, const byte* q, float* out) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    const ScalesAndMins packed = unpack_scales_and_mins(block + 4);
    for (int g = 0; g < 8; ++g) {
        const float scale = d * static_cast<float>((packed.scales >> (8 * g)) & 0xffU);
        const float minimum = dmin * static_cast<float>((packed.mins >> (8 * g)) & 0xffU);
        for (int i = 0; i < 32; ++i) {
            const byte pair = q[32 * (g / 2) + i];
            int code = g % 2 == 0 ? low_nibble(pair) : high_nibble(pair);
            if (h != nullptr) code |= ((u8(h[i]) >> g) & 1) << 4;
            out[32 * g + i] = scale * static_cast<float>(code) - minimum;
        }
    }
}
void decode_q4_k(const byte* block, float* out) {
    decode_q45_k(block, nullptr, block + 16, out);
}
void decode_q5_k(const byte* block, float* out) {
    decode_q45_k(block, block + 16, block + 48, out);
}

// clang-format off
// Decodes a block. Fields and their bytes:
// Q6_K   | ql:128 | qh:64 | scales:16 | d:2 |   256 weights in 8 groups g of 32, a signed scale for each 16 weights
//   half = g / 4, part = g % 4:  ql byte 64 half + 32 (part % 2) + i, low nibble for part < 2, else high nibble
//                                qh byte 32 half + i, bits 2 part and the next: bits 4 and 5 of weight i
//   w = d * scale * (q - 32)
// clang-format on
void decode_q6_k(const byte* block, float* out) {
    const byte* ql = block;
    const byte* qh = block + 128;
    const byte* scales = block + 192;
    const float d = load_half(block + 208);
    for (int g = 0; g < 8; ++g) {
        const int half = g / 4;
        const int part = g % 4;
        for (int i = 0; i < 32; ++i) {
            const float scale = d * static_cast<float>(s8(scales[2 * g + i / 16]));
            const byte pair = ql[64 * half + 32 * (part % 2) + i];
            const int low = part < 2 ? low_nibble(pair) : high_nibble(pair);
            const int high = (u8(qh[32 * half + i]) >> (2 * part)) & 3;
            out[32 * g + i] = scale * static_cast<float>((low | high << 4) - 32);
        }
    }
}

// clang-format off
// Decodes 32 weights: the 16 bytes at `q` of a block. Byte i of q: low nibble weight i, high nibble weight i + 16.
// Fields of the blocks and their bytes:
// IQ4_NL | d:2 | q:16 |                      w = d * kIq4Values[q]
// MXFP4  | e:1 | q:16 |                      w = 2^(e - 128) * kMxfp4Values[q]
// clang-format on
void decode_from_table(float scale, const CodeValues& values, const byte* q, float* out) {
    for (int i = 0; i < 16; ++i) {
        out[i] = scale * static_cast<float>(values[low_nibble(q[i])]);
        out[i + 16] = scale * static_cast<float>(values[high_nibble(q[i])]);
    }
}
void decode_iq4_nl(const byte* block, float* out) {
    decode_from_table(load_half(block), kIq4Values, block + 2, out);
}
void decode_mxfp4(const byte* block, float* out) {
    const auto scale = std::bit_cast<float>(mxfp4_scale_bits(static_cast<std::uint32_t>(u8(block[0]))));
    decode_from_table(scale, kMxfp4Values, block + 1, out);
}

// clang-format off
// Decodes a block. Fields and their bytes:
// IQ4_XS | d:2 | h:2 | l:4 | q:128 |         256 weights in 8 groups g of 32, each with 16 bytes of q as IQ4_NL has them
//   scale of group g: nibble g of l, low nibbles first, and above it bits 2 g and 2 g + 1 of h
//   w = d * (scale - 32) * kIq4Values[q]
// clang-format on
void decode_iq4_xs(const byte* block, float* out) {
    const float d = load_half(block);
    const int h = load_unaligned<std::uint16_t>(block + 2);
    for (int g = 0; g < 8; ++g) {
        const int low = (u8(block[4 + g / 2]) >> (4 * (g % 2))) & 15;
        const int scale = low | ((h >> (2 * g)) & 3) << 4;
        decode_from_table(d * static_cast<float>(scale - 32), kIq4Values, block + 8 + 16 * g, out + 32 * g);
    }
}

// clang-format off
// Decodes a block. Fields and their bytes:
// Q2_K   | scales:16 | q:64 | d:2 | dmin:2 |   256 weights in 8 groups g of 32, a scale and a minimum for each 16 weights
//   weight i of group g: q byte 32 (g / 4) + i, bits 2 (g % 4) and the next
//   byte 2 g + i / 16 of scales: scale in the low nibble, minimum in the high one;  w = (d * scale) * q - (dmin * min)
// clang-format on
void decode_q2_k(const byte* block, float* out) {
    const byte* q = block + 16;
    const float d = load_half(block + 80);
    const float dmin = load_half(block + 82);
    for (int g = 0; g < 8; ++g) {
        for (int i = 0; i < 32; ++i) {
            const byte pair = block[2 * g + i / 16];
            const float scale = d * static_cast<float>(low_nibble(pair));
            const float minimum = dmin * static_cast<float>(high_nibble(pair));
            out[32 * g + i] = scale * static_cast<float>((u8(q[32 * (g / 4) + i]) >> (2 * (g % 4))) & 3) - minimum;
        }
    }
}

void decode_blocks(DType type, const byte* src, float* dst, int64_t n_elements, void (*decode)(const byte*, float*)) {
    const DTypeInfo& info = dtype_info(type);
    for (int64_t i = 0; i < n_elements; i += info.block_elements, src += info.block_bytes) decode(src, dst + i);
}

}  // namespace

void dequantize_row(DType type, const byte* src, float* dst, int64_t n_elements) {
    if (n_elements == 0) return;
    CHECK(n_elements > 0 && n_elements % dtype_info(type).block_elements == 0, "{} elements of {}", n_elements,
          dtype_name(type));
    switch (type) {
        case DType::F32:
            std::memcpy(dst, src, n_elements * sizeof(float));
            return;
        case DType::F16:
            for (int64_t i = 0; i < n_elements; ++i) dst[i] = load_half(src + 2 * i);
            return;
        case DType::BF16:
            for (int64_t i = 0; i < n_elements; ++i) dst[i] = to_float(load_unaligned<BFloat16>(src + 2 * i));
            return;
        case DType::Q8_0:
            decode_blocks(type, src, dst, n_elements, decode_q8_0);
            return;
        case DType::Q4_0:
            decode_blocks(type, src, dst, n_elements, decode_q4_0);
            return;
        case DType::Q4_1:
            decode_blocks(type, src, dst, n_elements, decode_q4_1);
            return;
        case DType::Q5_0:
            decode_blocks(type, src, dst, n_elements, decode_q5_0);
            return;
        case DType::Q5_1:
            decode_blocks(type, src, dst, n_elements, decode_q5_1);
            return;
        case DType::Q3_K:
            decode_blocks(type, src, dst, n_elements, decode_q3_k);
            return;
        case DType::Q4_K:
            decode_blocks(type, src, dst, n_elements, decode_q4_k);
            return;
        case DType::Q5_K:
            decode_blocks(type, src, dst, n_elements, decode_q5_k);
            return;
        case DType::Q6_K:
            decode_blocks(type, src, dst, n_elements, decode_q6_k);
            return;
        case DType::IQ4_NL:
            decode_blocks(type, src, dst, n_elements, decode_iq4_nl);
            return;
        case DType::MXFP4:
            decode_blocks(type, src, dst, n_elements, decode_mxfp4);
            return;
        case DType::IQ4_XS:
            decode_blocks(type, src, dst, n_elements, decode_iq4_xs);
            return;
        case DType::Q2_K:
            decode_blocks(type, src, dst, n_elements, decode_q2_k);
            return;
    }
    CHECK(false, "dtype {}", static_cast<int>(type));
}

}  // namespace slipstream::cpu
