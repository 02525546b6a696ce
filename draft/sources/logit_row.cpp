#include "draft/sources/logit_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "runtime/loop/sampling/lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream::draft {

namespace {

constexpr std::size_t kBlock = 32;
constexpr float kLog2OfE = 1.44269504F;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The first block from `begin` on that holds a value above `bound`, NaN being none, or where less than a block is left.
std::size_t find_above_portable(std::span<const float> values, std::size_t begin, float bound) {
    for (; begin + kBlock <= values.size(); begin += kBlock) {
        std::uint32_t above = 0;  // without an early way out, so that it becomes vectors
        for (std::size_t i = 0; i < kBlock; ++i) above |= values[begin + i] > bound ? 1U : 0U;
        if (above != 0) break;
    }
    return begin;
}

#if defined(__x86_64__)
#define SLIPSTREAM_DRAFT_AVX2 __attribute__((target("avx2")))

SLIPSTREAM_DRAFT_AVX2 std::size_t find_above_avx2(std::span<const float> values, std::size_t begin, float bound) {
    const __m256 bounds = _mm256_set1_ps(bound);
    for (; begin + kBlock <= values.size(); begin += kBlock) {
        const float* at = values.data() + begin;
        __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(at), bounds, _CMP_GT_OQ);
        for (std::size_t i = 8; i < kBlock; i += 8)
            above = _mm256_or_ps(above, _mm256_cmp_ps(_mm256_loadu_ps(at + i), bounds, _CMP_GT_OQ));
        if (_mm256_movemask_ps(above) != 0) break;
    }
    return begin;
}
#endif

std::size_t find_above(std::span<const float> values, std::size_t begin, float bound) {
#if defined(__x86_64__)
    if (widest_lanes() >= Lanes::Avx2) return find_above_avx2(values, begin, bound);
#endif
    return find_above_portable(values, begin, bound);
}

// 2^x for x in [-126, 0], relative error below 8e-5: a cubic fitted to 2^f on (-1, 0] for least relative error (ours).
[[gnu::always_inline]] inline float power_of_two_below_one(float x) {
    const auto whole = static_cast<std::int32_t>(x);  // towards 0
    const float f = x - static_cast<float>(whole);    // (-1, 0]
    const float power = 0.99992522F + f * (0.69102071F + f * (0.23007036F + f * 0.03901226F));
    return power * std::bit_cast<float>(static_cast<std::uint32_t>(whole + 127) << 23);
}

// (logit - greatest) * scale, at least -126; NaN as well: 2^-126 is as good as 0.
[[gnu::always_inline]] inline float exponent_of(float logit, float greatest, float scale) {
    constexpr float least = -126.0F;
    const float x = (logit - greatest) * scale;
    return x > least ? x : least;
}

// Sum of 2^((logit - greatest) * scale) over every stride-th block, from the first on.
[[gnu::always_inline]] inline double sum_blocks(std::span<const float> logits, float greatest, float scale,
                                                std::size_t stride) {
    double total = 0.0;
    // A block's terms in small steps, then its sum in halves: all of them become vectors.
    float terms[kBlock] = {};
    for (std::size_t begin = 0; begin < logits.size(); begin += stride * kBlock) {
        const std::size_t n = std::min(kBlock, logits.size() - begin);
        const float* values = logits.data() + begin;
        float rest[kBlock];
        if (n < kBlock) {
            std::fill(std::copy_n(values, n, rest), rest + kBlock, kNothing);
            values = rest;
        }
        for (std::size_t i = 0; i < kBlock; ++i) terms[i] = exponent_of(values[i], greatest, scale);
        for (float& term : terms) term = power_of_two_below_one(term);
        for (std::size_t half = kBlock / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) terms[i] += terms[i + half];
        total += static_cast<double>(terms[0]);
    }
    return total;
}

#if defined(__x86_64__)
// The same bits: wider vectors, no fused operations.
SLIPSTREAM_DRAFT_AVX2 double sum_blocks_avx2(std::span<const float> logits, float greatest, float scale,
                                             std::size_t stride) {
    return sum_blocks(logits, greatest, scale, stride);
}
#endif

double sum_of_blocks(std::span<const float> logits, float greatest, float scale, std::size_t stride) {
#if defined(__x86_64__)
    if (widest_lanes() >= Lanes::Avx2) return sum_blocks_avx2(logits, greatest, scale, stride);
#endif
    return sum_blocks(logits, greatest, scale, stride);
}

}  // namespace

RowTop::RowTop(std::int64_t max_k) : top_(static_cast<std::size_t>(max_k)) {
    CHECK(max_k > 0, "the best {}", max_k);
}

std::span<const TopToken> RowTop::best(std::span<const float> logits, std::int64_t k) {
    CHECK(k > 0, "the best {}", k);
    const std::size_t n_wanted = std::min(static_cast<std::size_t>(k), top_.size());
    std::size_t n = 0;
    float bound = kNothing;
    for (std::size_t begin = find_above(logits, 0, bound); begin < logits.size();
         begin = find_above(logits, begin + kBlock, bound)) {
        const std::size_t end = std::min(begin + kBlock, logits.size());
        for (std::size_t i = begin; i < end; ++i) {
            const float value = logits[i];
            if (!(value > bound)) continue;
            std::size_t at = n == n_wanted ? n - 1 : n++;
            for (; at > 0 && top_[at - 1].logit < value; --at) top_[at] = top_[at - 1];  // of equals the lower id first
            top_[at] = {static_cast<TokenId>(i), value};
            if (n == n_wanted) bound = top_[n - 1].logit;
        }
    }
    return {top_.data(), n};
}

std::span<const TopToken> RowTop::best(const LogitRows& rows, std::int64_t row, std::int64_t k) {
    CHECK(k > 0, "the best {}", k);
    if (!rows.on_device()) return best(rows.row(row), k);
    const TopLogits head = rows.top(row);
    const std::size_t n_wanted = std::min(static_cast<std::size_t>(k), top_.size());
    if (head.ids.size() < n_wanted && !head.complete) return best(rows.row(row), k);
    const std::size_t n = std::min(head.ids.size(), n_wanted);
    for (std::size_t i = 0; i < n; ++i) top_[i] = {head.ids[i], head.logits[i]};
    return {top_.data(), n};
}

float log_normaliser(std::span<const float> logits, float greatest, float temperature) {
    const double sum = sum_of_blocks(logits, greatest, kLog2OfE / temperature, 1);
    return static_cast<float>(std::log(std::max(sum, 1.0)));
}

float estimated_log_normaliser(std::span<const float> logits, std::span<const TopToken> top, float temperature) {
    CHECK(!top.empty());
    const float greatest = top.front().logit;
    constexpr std::size_t least_sampled = 2048;
    if (logits.size() < least_sampled) return log_normaliser(logits, greatest, temperature);
    constexpr std::size_t stride = 4;
    const float scale = kLog2OfE / temperature;
    double best = 0.0;
    double others = sum_of_blocks(logits, greatest, scale, stride);
    for (const TopToken& candidate : top) {
        const auto term = static_cast<double>(power_of_two_below_one(exponent_of(candidate.logit, greatest, scale)));
        best += term;
        if (static_cast<std::size_t>(candidate.token) / kBlock % stride == 0) others -= term;
    }
    const double sum = best + static_cast<double>(stride) * std::max(others, 0.0);
    return static_cast<float>(std::log(std::max(sum, 1.0)));
}

float estimated_log_normaliser(const LogitRows& rows, std::int64_t row, std::span<const TopToken> top,
                               float temperature) {
    if (rows.on_device()) {
        const TopLogits head = rows.top(row);
        constexpr double same = 1e-6;  // as good as
        const double difference = std::abs(head.sum_temperature - static_cast<double>(temperature));
        if (difference <= same * head.sum_temperature) return std::log(std::max(head.sum, 1.0F));
    }
    return estimated_log_normaliser(rows.row(row), top, temperature);
}

}  // namespace slipstream::draft
