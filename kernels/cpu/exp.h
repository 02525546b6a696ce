// exp, tanh and log for CPU kernels, in plain float arithmetic without fused operations. The compiler vectorises the
// functions, and every kernel variant gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace slipstream::cpu {

inline constexpr float kExpLog2e = 1.44269504F;       // 1 / ln 2
inline constexpr float kExpLn2High = 0.693359375F;    // 355 / 512, about ln 2: n * kExpLn2High is exact
inline constexpr float kExpLn2Low = -2.12194440e-4F;  // ln 2 - kExpLn2High
inline constexpr float kExpRound = 12582912.0F;       // 1.5 * 2^23: adding it to a float rounds the float to an integer
inline constexpr int kExpTerms = 6;                   // coefficients of kExpTaylor
// Coefficients 1/7! to 1/2! of the Taylor series of exp(r), for the terms from r^7 down to r^2.
inline constexpr float kExpTaylor[kExpTerms] = {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 1.0F / 2};

/// exp(x) = (less_one + 1) * scale, where `scale` is a power of two.
struct ExpParts {
    float less_one;  // exp(r) - 1, r = x - n ln 2, |r| <= ln 2 / 2
    float scale;     // 2^n
};
/// Returns exp(x) in two parts. Method: the Taylor series of exp(r) to degree 7 leaves a remainder of r^8 / 8! < 6e-9.
/// `x` must be in [-87, 88] or NaN (not checked).
[[gnu::always_inline]] inline ExpParts exp_parts(float x) {
    const float shifted = x * kExpLog2e + kExpRound;
    const float n = shifted - kExpRound;
    const float r = (x - n * kExpLn2High) - n * kExpLn2Low;
    float p = kExpTaylor[0];
    for (int i = 1; i < kExpTerms; ++i) p = p * r + kExpTaylor[i];
    // The low bits of `shifted` are the integer n. Added to the bias and moved into the exponent field, n gives 2^n.
    const std::uint32_t scale_bits = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
    return {p * (r * r) + r, std::bit_cast<float>(scale_bits)};
}

/// Returns exp(x), with an error of at most 2 ulp (tested). `x` must be at most 88 or NaN (not checked). Below -87
/// (also for -infinity) the result is 0; at 0 it is exactly 1; for a NaN it is a NaN.
[[gnu::always_inline]] inline float exp_float(float x) {
    const ExpParts parts = exp_parts(x < -87.0F ? -87.0F : x);
    const float result = (parts.less_one + 1.0F) * parts.scale;
    return x < -87.0F ? 0.0F : result;
}

/// Returns tanh(x), with a relative error of at most 2^-22 (tested), so also near 0. 1 and -1 from about 9 on, also for
/// infinities; the sign of a zero is kept; for a NaN the result is a NaN. Method: t / (t + 2) with t = exp(2 |x|) - 1.
/// t is less_one * scale + (scale - 1), which loses no digits by subtraction: if 2 |x| < ln 2 / 2, `scale` is 1 and t
/// is less_one; otherwise scale - 1 is at least 1 and less_one * scale above -0.3 * scale.
[[gnu::always_inline]] inline float tanh_float(float x) {
    constexpr std::uint32_t kSign = 0x80000000;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const float size = std::bit_cast<float>(bits & ~kSign);
    const ExpParts parts = exp_parts(size > 10.0F ? 20.0F : 2.0F * size);
    const float t = parts.less_one * parts.scale + (parts.scale - 1.0F);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(t / (t + 2.0F)) | (bits & kSign));
}

/// x -> cap * tanh(x / cap), for cap > 0. The quotient is computed as a product with 1 / cap.
struct Softcap {
    float cap;
    float inverse;

    [[gnu::always_inline]] explicit Softcap(float by) : cap(by), inverse(1.0F / by) {}
    [[gnu::always_inline]] float operator()(float x) const { return cap * tanh_float(x * inverse); }
};

/// Returns log(x) for a normal x > 0. For any other x the result is a finite number that means nothing. Method:
/// x = 2^n c with c in [sqrt(1/2), sqrt(2)); log c = 2 artanh((c - 1) / (c + 1)), whose series up to the ninth power
/// leaves a remainder of 2 * 0.1716^11 / 11 < 1e-9.
[[gnu::always_inline]] inline float log_float(float x) {
    constexpr std::uint32_t kRootOfHalf = 0x3f3504f3;
    const std::int32_t n = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x) - kRootOfHalf) >> 23;
    const float c = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) - (static_cast<std::uint32_t>(n) << 23));
    const float s = (c - 1.0F) / (c + 1.0F);
    const float square = s * s;
    float p = 1.0F / 9;
    p = p * square + 1.0F / 7;
    p = p * square + 1.0F / 5;
    p = p * square + 1.0F / 3;
    return static_cast<float>(n) * (1.0F / kExpLog2e) + (2.0F * s + 2.0F * s * (p * square));
}

}  // namespace slipstream::cpu
