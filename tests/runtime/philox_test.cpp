// Philox against the published known answers; the noise of E2 against an implementation of its own with 40 digits, its
// bits against the pinned ones, its distribution against Gumbel's.
#include "kernels/base/philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/noise.h"

namespace slipstream {
namespace {

constexpr bool equal(PhiloxBlock a, PhiloxBlock b) {
    return std::ranges::equal(a.word, b.word);
}

// Random123, tests/kat_vectors, "philox4x32 10".
static_assert(equal(philox4x32_10({{0, 0, 0, 0}}, {0, 0}), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(equal(philox4x32_10({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, {0xffffffff, 0xffffffff}),
                    {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(equal(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}),
                    {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

TEST(Philox, GivesThePublishedAnswersAtRunTime) {
    volatile std::uint32_t zero = 0;  // keeps the compiler from folding what the assertions above have folded
    EXPECT_TRUE(equal(philox4x32_10({{zero, zero, zero, zero}}, {zero, zero}),
                      {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

double ulp(float value) {
    const float magnitude = std::fabs(value);
    return static_cast<double>(std::nextafterf(magnitude, std::numeric_limits<float>::infinity())) - magnitude;
}

/// -log(u) in double, u = (2 word + 1) / 2^33, from the nearer end.
double exact_exponential(std::uint32_t word) {
    if (word < 0x80000000U) return -std::log((2.0 * word + 1.0) * 0x1p-33);
    return -std::log1p(-(0x1p33 - 2.0 * word - 1.0) * 0x1p-33);
}

/// Words all over the range, both ends densely.
std::vector<std::uint32_t> sample_words() {
    std::vector<std::uint32_t> words;
    for (std::uint32_t i = 0; i < 50000; ++i) {
        words.push_back(i);
        words.push_back(0xffffffffU - i);
        words.push_back(0x80000000U - 25000 + i);
    }
    for (std::uint64_t i = 0; i < 1U << 20; ++i) words.push_back(static_cast<std::uint32_t>(i * 4095 + (i >> 3)));
    return words;
}

TEST(Noise, MatchesAnIndependentImplementation) {
    std::ifstream file(SLIPSTREAM_GOLDEN_DIR "/philox/noise.txt");
    std::uint64_t seed = 0;
    std::uint64_t position = 0;
    std::uint32_t token = 0;
    std::uint32_t word = 0;
    double gumbel = 0;
    int n_lines = 0;
    for (; file >> seed >> position >> token >> word >> gumbel; ++n_lines) {
        EXPECT_EQ(noise_block(seed, position, token / 4, NoiseStream::Sampling).word[token % 4], word)
            << seed << ' ' << position << ' ' << token;
        const float ours = gumbel_noise(seed, position, token);
        EXPECT_LE(std::fabs(ours - gumbel), 1.5e-7 + ulp(ours)) << seed << ' ' << position << ' ' << token;
    }
    EXPECT_EQ(n_lines, 207);
}

TEST(Noise, StreamsAreApart) {
    EXPECT_FALSE(equal(noise_block(1, 2, 3, NoiseStream::Sampling), noise_block(1, 2, 3, NoiseStream::Rejection)));
}

TEST(Noise, ExponentialIsWithinItsStatedError) {
    for (const std::uint32_t word : sample_words()) {
        const double exact = exact_exponential(word);
        ASSERT_LE(std::fabs(exponential_noise(word) - exact), 1.5e-7 * exact) << "word " << word;
    }
    EXPECT_EQ(exponential_noise(0xffffffffU), 0x1p-33F);          // u never is 1
    EXPECT_NEAR(exponential_noise(0), 33 * std::log(2.0), 3e-6);  // nor 0
}

TEST(Noise, LogarithmIsWithinItsStatedError) {
    for (std::uint32_t bits = 0x2f000000U; bits < 0x42000000U;
         bits += 997) {  // 2^-33 ... 32, all that gumbel_of() asks for
        const float value = std::bit_cast<float>(bits);
        const double exact = std::log(static_cast<double>(value));
        ASSERT_LE(std::fabs(log_float(value) - exact), 1e-7 * std::fabs(exact)) << value;
    }
    EXPECT_EQ(log_float(1.0F), 0.0F);
}

TEST(Noise, GumbelIsWithinItsStatedErrorAndRange) {
    for (const std::uint32_t word : sample_words()) {
        const float gumbel = gumbel_of(word);
        ASSERT_LE(std::fabs(gumbel + std::log(exact_exponential(word))), 1.5e-7 + ulp(gumbel)) << "word " << word;
        ASSERT_LE(gumbel, kMaxGumbel);
        ASSERT_LE(gumbel, gumbel_upper_bound(word)) << word;
    }
    EXPECT_EQ(gumbel_of(0xffffffffU), kMaxGumbel);
}

// Seeded texts change with these bits: no compiler, optimisation level or refactoring may move them.
TEST(Noise, BitsAreThePinnedOnes) {
    struct Pinned {
        std::uint32_t word, bits;
    };
    constexpr Pinned pinned[] = {{0x00000000U, 0xc04851d5U}, {0x00000001U, 0xc0452b66U}, {0x00000002U, 0xc043a677U},
                                 {0x0fffffffU, 0xbf828833U}, {0x3fffffffU, 0xbea73c9bU}, {0x7fffffffU, 0x3ebba795U},
                                 {0x80000000U, 0x3ebba795U}, {0xb504f333U, 0x3f87a2f1U}, {0xc0000000U, 0x3f9f79a2U},
                                 {0xf0000000U, 0x402f643dU}, {0xfffffffeU, 0x41ae33b3U}, {0xffffffffU, 0x41b6fda9U}};
    for (const Pinned& entry : pinned)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(gumbel_of(entry.word)), entry.bits) << entry.word;
    // FNV-1a over the bits of 2^20 values.
    std::uint64_t hash = 1469598103934665603U;
    for (std::uint64_t i = 0; i < 1U << 20; ++i) {
        const float gumbel = gumbel_of(static_cast<std::uint32_t>(i * 4095 + (i >> 3)));
        hash = (hash ^ std::bit_cast<std::uint32_t>(gumbel)) * 1099511628211U;
    }
    EXPECT_EQ(hash, 0x7e024a02cbd97d1cU);
}

TEST(Noise, IsGumbelDistributedOverTokensAndPositions) {
    for (const bool over_positions : {false, true}) {
        std::vector<double> values;
        for (std::uint32_t i = 0; i < 200000; ++i)
            values.push_back(over_positions ? gumbel_noise(42, i, 17) : gumbel_noise(42, 17, i));
        std::ranges::sort(values);
        const auto n = static_cast<double>(values.size());
        double sum = 0;
        double squares = 0;
        double distance = 0;  // Kolmogorov-Smirnov
        for (std::size_t i = 0; i < values.size(); ++i) {
            sum += values[i];
            squares += values[i] * values[i];
            const double cdf = std::exp(-std::exp(-values[i]));
            distance = std::max({distance, std::fabs(cdf - static_cast<double>(i) / n),
                                 std::fabs(cdf - static_cast<double>(i + 1) / n)});
        }
        const double mean = sum / n;
        const double variance = squares / n - mean * mean;
        // Mean: Euler's constant; variance pi^2 / 6. Bounds: 4 standard errors (kurtosis of Gumbel: 5.4).
        const double true_variance = 1.6449340668482264;
        EXPECT_NEAR(mean, 0.5772156649015329, 4 * std::sqrt(true_variance / n));
        EXPECT_NEAR(variance, true_variance, 4 * true_variance * std::sqrt(4.4 / n));
        EXPECT_LT(distance, 1.95 / std::sqrt(n));  // 0.1 %
    }
}

}  // namespace
}  // namespace slipstream
