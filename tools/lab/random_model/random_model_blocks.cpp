// Blocks in the formats that kernels/cpu/matmul/dequantize.cpp decodes. Means are kept at zero, since a common mean of
// all weights would push every hidden state in the same direction: formats with minimums get the minimum that centres
// the codes, signed scales get random signs.
#include "tools/lab/random_model/random_model_blocks.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/code_tables.h"
#include "kernels/base/float16.h"

namespace slipstream::tools {

namespace {

// Returns the root mean square of codes that are uniform over 2^bits values around their centre.
double code_deviation(int bits) {
    const double n = std::ldexp(1.0, bits);
    return std::sqrt((n * n - 1.0) / 12.0);
}

// Returns the root mean square of the values of a table.
double table_deviation(const CodeValues& values) {
    double squares = 0.0;
    for (const int value : values) squares += value * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
}

// Returns the deviation of weights with d = 1, from the codes and inner scales of a block; so d = deviation /
// block_deviation(type).
double block_deviation(DType type) {
    constexpr double kScales32To63 = 48.4;    // root mean square of 6-bit scales from 32 to 63
    constexpr double kScales64To127 = 97.3;   // root mean square of signed scales with magnitudes from 64 to 127
    constexpr double kScalesSixBits = 18.48;  // root mean square of signed 6-bit scales, from -32 to 31
    constexpr double kScales8To15 = 11.73;    // root mean square of 4-bit scales from 8 to 15
    switch (type) {
        case DType::Q8_0:
            return code_deviation(8);
        case DType::Q4_0:
        case DType::Q4_1:
            return code_deviation(4);
        case DType::Q5_0:
        case DType::Q5_1:
            return code_deviation(5);
        case DType::Q3_K:
            return kScalesSixBits * code_deviation(3);
        case DType::Q4_K:
            return kScales32To63 * code_deviation(4);
        case DType::Q5_K:
            return kScales32To63 * code_deviation(5);
        case DType::Q6_K:
            return kScales64To127 * code_deviation(6);
        case DType::IQ4_NL:
        case DType::MXFP4:
            return table_deviation(code_values(type));
        case DType::IQ4_XS:
            return kScalesSixBits * table_deviation(kIq4Values);
        case DType::Q2_K:
            return kScales8To15 * code_deviation(2);
        default:
            return 1.0;
    }
}

constexpr std::size_t kQuantiles = 4096;

// Returns the quantile of the standard normal distribution for p, by bisection of its distribution function.
double normal_quantile(double p) {
    double low = -8.0;
    double high = 8.0;
    for (int i = 0; i < 50; ++i) {
        const double middle = 0.5 * (low + high);
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

// Returns equally likely values of the standard normal distribution.
const std::array<double, kQuantiles>& normal_quantiles() {
    static const std::array<double, kQuantiles> kValues = [] {
        std::array<double, kQuantiles> values{};
        for (std::size_t i = 0; i < kQuantiles; ++i)
            values[i] = normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(kQuantiles));
        return values;
    }();
    return kValues;
}

// Writes one of `values`, chosen at random, for each element. Bits has the size of the type.
template <typename Bits>
void put_floats(std::byte* dst, std::int64_t n, const std::vector<std::uint32_t>& values, RandomWords& words) {
    std::uint64_t random = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        random = i % 4 == 0 ? words.next() : random >> 16;
        const auto bits = static_cast<Bits>(values[random % kQuantiles]);
        std::memcpy(dst + i * sizeof(Bits), &bits, sizeof(Bits));
    }
}

void put_half(std::byte* dst, float value) {
    const Half half = to_half(value);
    std::memcpy(dst, &half, sizeof(half));
}

void put_word(std::byte* dst, std::uint64_t word) {
    std::memcpy(dst, &word, sizeof(word));
}

// Returns 3/4 to 5/4 of `scale`. Blocks must differ, or tests would not notice a kernel that confuses them.
float varied(float scale, std::uint64_t random) {
    return scale * (0.75F + static_cast<float>(random >> 56) / 512.0F);
}

float with_random_sign(float scale, std::uint64_t random) {
    return (random & 1U) != 0 ? -scale : scale;
}

void put_q8_0(std::byte* block, float scale, RandomWords& words) {
    put_half(block, varied(scale, words.next()));
    for (int i = 0; i < 32; i += 8) put_word(block + 2 + i, words.next());
    // Quantisers do not use -128, and kernels may rely on that.
    for (int i = 2; i < 34; ++i)
        if (block[i] == std::byte{0x80}) block[i] = std::byte{0};
}

// Writes a block of Q4_0, Q5_0 or IQ4_NL, d and `bytes` of codes, or of Q4_1 or Q5_1, with a minimum of -`centre` * d
// between them.
void put_small_block(std::byte* block, float scale, float centre, std::size_t bytes, RandomWords& words) {
    const std::uint64_t random = words.next();
    const float d = with_random_sign(varied(scale, random), random);
    put_half(block, d);
    std::byte* codes = block + 2;
    if (centre > 0.0F) {
        put_half(codes, -centre * to_float(to_half(d)));
        codes += 2;
    }
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) put_word(codes + i, words.next());
    if (bytes % 8 != 0) {
        const auto rest = static_cast<std::uint32_t>(words.next());
        std::memcpy(codes + bytes - 4, &rest, sizeof(rest));
    }
}

// Writes a block of Q4_K or Q5_K: scales of 32 to 63 and minimums equal to the scales, so that dmin = centre * d
// centres every group.
void put_q45_k(std::byte* block, float scale, float centre, std::size_t code_bytes, RandomWords& words) {
    const std::uint64_t random = words.next();
    const float d = varied(scale, random);
    put_half(block, d);
    put_half(block + 2, centre * to_float(to_half(d)));
    const auto first = static_cast<std::uint32_t>(random) | 0xa0a0a0a0U;  // scales 0-3, upper bits of 4-7
    const std::uint32_t nibbles = static_cast<std::uint32_t>(words.next()) & 0x0f0f0f0fU;
    const std::uint32_t last = nibbles | nibbles << 4;
    std::memcpy(block + 4, &first, 4);
    std::memcpy(block + 8, &first, 4);
    std::memcpy(block + 12, &last, 4);
    for (std::size_t i = 0; i < code_bytes; i += 8) put_word(block + 16 + i, words.next());
}

void put_q3_k(std::byte* block, float scale, RandomWords& words) {
    for (int i = 0; i < 104; i += 8) put_word(block + i, words.next());
    const std::uint64_t random = words.next();
    const auto last_scales = static_cast<std::uint32_t>(random);
    std::memcpy(block + 104, &last_scales, 4);
    put_half(block + 108, varied(scale, random));
}

void put_q6_k(std::byte* block, float scale, RandomWords& words) {
    for (int i = 0; i < 192; i += 8) put_word(block + i, words.next());
    for (int i = 0; i < 16; i += 8) {
        // Scales with magnitudes of 64 to 127 as signed bytes: 01xxxxxx, or 10xxxxxx, which is -128 to -65.
        const std::uint64_t random = words.next();
        const std::uint64_t negative = (random >> 7) & 0x0101010101010101U;
        put_word(block + 192 + i,
                 (random & 0x3f3f3f3f3f3f3f3fU) | negative << 7 | (negative ^ 0x0101010101010101U) << 6);
    }
    put_half(block + 208, varied(scale, words.next()));
}

// Writes a block of MXFP4. Scales are powers of two: blocks have one of the two next to `scale`, in shares that give
// their squares a mean of scale^2.
void put_mxfp4(std::byte* block, float scale, RandomWords& words) {
    int exponent = 0;
    const double mantissa = 2.0 * std::frexp(double{scale}, &exponent);  // 1 to 2, times 2^(exponent - 1)
    const double share_of_upper = (mantissa * mantissa - 1.0) / 3.0;
    const bool is_upper = static_cast<double>(words.next() >> 11) * 0x1p-53 < share_of_upper;
    block[0] = static_cast<std::byte>(exponent - 1 + (is_upper ? 1 : 0) + 128);
    for (int i = 1; i < 17; i += 8) put_word(block + i, words.next());
}

void put_iq4_xs(std::byte* block, float scale, RandomWords& words) {
    const std::uint64_t random = words.next();
    const float d = varied(scale, random);
    put_half(block, d);
    std::memcpy(block + 2, &random, 6);  // all bits of the scales
    for (int i = 8; i < 136; i += 8) put_word(block + i, words.next());
}

// Writes a block of Q2_K: scales of 8 to 15 and minimums equal to the scales, so that dmin = 1.5 d centres every run.
void put_q2_k(std::byte* block, float scale, RandomWords& words) {
    for (int i = 0; i < 16; i += 8) {
        const std::uint64_t scales = (words.next() & 0x0707070707070707U) | 0x0808080808080808U;
        put_word(block + i, scales | scales << 4);
    }
    for (int i = 16; i < 80; i += 8) put_word(block + i, words.next());
    const float d = varied(scale, words.next());
    put_half(block + 80, d);
    put_half(block + 82, 1.5F * to_float(to_half(d)));
}

}  // namespace

RandomBlocks::RandomBlocks(DType type, double deviation)
    : type_(type), scale_(static_cast<float>(deviation / block_deviation(type))) {
    if (is_quantized(type)) return;
    for (const double quantile : normal_quantiles()) {
        const auto value = static_cast<float>(deviation * quantile);
        float_bits_.push_back(type == DType::F32    ? std::bit_cast<std::uint32_t>(value)
                              : type == DType::BF16 ? to_bfloat16(value).bits
                                                    : to_half(value).bits);
    }
}

void RandomBlocks::fill(std::byte* dst, std::int64_t n_blocks, std::uint64_t seed) const {
    RandomWords words(RandomWords::mixed(seed));
    if (type_ == DType::F32) {
        put_floats<std::uint32_t>(dst, n_blocks, float_bits_, words);
        return;
    }
    if (!is_quantized(type_)) {
        put_floats<std::uint16_t>(dst, n_blocks, float_bits_, words);
        return;
    }
    const std::size_t bytes = dtype_info(type_).block_bytes;
    for (std::int64_t i = 0; i < n_blocks; ++i, dst += bytes) {
        switch (type_) {
            case DType::Q8_0:
                put_q8_0(dst, scale_, words);
                break;
            case DType::Q4_0:
            case DType::IQ4_NL:
                put_small_block(dst, scale_, 0.0F, 16, words);
                break;
            case DType::Q4_1:
                put_small_block(dst, scale_, 7.5F, 16, words);
                break;
            case DType::Q5_0:
                put_small_block(dst, scale_, 0.0F, 20, words);
                break;
            case DType::Q5_1:
                put_small_block(dst, scale_, 15.5F, 20, words);
                break;
            case DType::Q3_K:
                put_q3_k(dst, scale_, words);
                break;
            case DType::Q4_K:
                put_q45_k(dst, scale_, 7.5F, 128, words);
                break;
            case DType::Q5_K:
                put_q45_k(dst, scale_, 15.5F, 160, words);
                break;
            case DType::Q6_K:
                put_q6_k(dst, scale_, words);
                break;
            case DType::MXFP4:
                put_mxfp4(dst, scale_, words);
                break;
            case DType::IQ4_XS:
                put_iq4_xs(dst, scale_, words);
                break;
            case DType::Q2_K:
                put_q2_k(dst, scale_, words);
                break;
            default:
                CHECK(false, "blocks of {}", dtype_name(type_));
        }
    }
}

}  // namespace slipstream::tools
