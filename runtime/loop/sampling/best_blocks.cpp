#include "runtime/loop/sampling/best_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream {

namespace {

// Logits per block.
constexpr std::size_t kBlock = 16;
// Blocks that are processed together: a vector of AVX-512 holds as many floats.
constexpr std::size_t kLanes = 16;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kSteps = 64;
// Range of logits, from the greatest down, that is divided into kSteps steps. Maxima further below count in the last
// step.
constexpr float kWidest = 64.0F;
// Least range of maxima that is divided into steps, relative to the greatest logit and absolute: a smaller range is so
// near the rounding error that the bound is computed exactly.
constexpr float kNarrowest = 1e-6F;
// If steps yield more than this many times k maxima, the bound is computed exactly: too many candidates cost more.
constexpr std::size_t kMostTooMany = 4;

struct Extent {
    float lowest;
    float greatest;
};

// best[j] becomes the greatest of the logits j, j + stride, j + 2 stride, ...; stride is a multiple of kLanes. Returns
// the extent of `best`.
[[gnu::always_inline]] inline Extent take_maxima_in_lanes(std::span<const float> logits, std::size_t stride,
                                                          float* best) {
    float lowest[kLanes];
    float greatest[kLanes];
    std::fill(lowest, lowest + kLanes, -kImpossible);
    std::fill(greatest, greatest + kLanes, kImpossible);
    for (std::size_t first = 0; first < stride; first += kLanes) {
        float most[kLanes];
        std::fill(most, most + kLanes, kImpossible);
        std::size_t at = first;
        for (; at + kLanes <= logits.size(); at += stride)
            for (std::size_t lane = 0; lane < kLanes; ++lane)
                most[lane] = logits[at + lane] > most[lane] ? logits[at + lane] : most[lane];
        for (std::size_t lane = 0; at + lane < logits.size() && lane < kLanes; ++lane)
            most[lane] = logits[at + lane] > most[lane] ? logits[at + lane] : most[lane];
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            best[first + lane] = most[lane];
            lowest[lane] = most[lane] < lowest[lane] ? most[lane] : lowest[lane];
            greatest[lane] = most[lane] > greatest[lane] ? most[lane] : greatest[lane];
        }
    }
    return {*std::min_element(lowest, lowest + kLanes), *std::max_element(greatest, greatest + kLanes)};
}

// Writes the ids of logits that are at least `bound`, ascending, to `ids` [vocab]; returns how many. NaN is never
// written.
std::size_t find_reaching_portable(std::span<const float> logits, float bound, std::uint32_t* ids) {
    std::size_t n = 0;
    std::size_t id = 0;
#if defined(__x86_64__)
    const __m128 bounds = _mm_set1_ps(bound);
    for (; id + kLanes <= logits.size(); id += kLanes) {
        std::uint32_t bits = 0;
        for (std::size_t part = 0; part < kLanes; part += 4) {
            const __m128 reach = _mm_cmpge_ps(_mm_loadu_ps(logits.data() + id + part), bounds);
            bits |= static_cast<std::uint32_t>(_mm_movemask_ps(reach)) << part;
        }
        for (; bits != 0; bits &= bits - 1)
            ids[n++] = static_cast<std::uint32_t>(id) + static_cast<std::uint32_t>(std::countr_zero(bits));
    }
#endif
    for (; id < logits.size(); ++id) {
        ids[n] = static_cast<std::uint32_t>(id);
        n += logits[id] >= bound ? 1 : 0;
    }
    return n;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) Extent take_maxima_avx2(std::span<const float> logits, std::size_t stride,
                                                        float* best) {
    return take_maxima_in_lanes(logits, stride, best);
}

#define SLIPSTREAM_BEST_AVX512 __attribute__((target("avx512f,avx512vl")))

SLIPSTREAM_BEST_AVX512 Extent take_maxima_avx512(std::span<const float> logits, std::size_t stride, float* best) {
    return take_maxima_in_lanes(logits, stride, best);
}

SLIPSTREAM_BEST_AVX512 std::size_t find_reaching_avx512(std::span<const float> logits, float bound,
                                                        std::uint32_t* ids) {
    // Four vectors are compared together, since few of them have a logit that reaches the bound.
    constexpr std::size_t at_once = 4 * kLanes;
    const __m512 bounds = _mm512_set1_ps(bound);
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::size_t n = 0;
    std::size_t id = 0;
    for (; id + at_once <= logits.size(); id += at_once) {
        std::uint64_t bits = 0;
        for (std::size_t part = 0; part < at_once; part += kLanes)
            bits |= static_cast<std::uint64_t>(
                        _mm512_cmp_ps_mask(_mm512_loadu_ps(logits.data() + id + part), bounds, _CMP_GE_OQ))
                    << part;
        if (bits == 0) continue;
        for (std::size_t part = 0; part < at_once; part += kLanes) {
            const auto reach = static_cast<__mmask16>(bits >> part);
            const __m512i here = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(id + part)), steps);
            // Stores a whole vector: that fits, since at most as many ids are written so far as logits precede this
            // vector.
            _mm512_storeu_si512(ids + n, _mm512_maskz_compress_epi32(reach, here));
            n += static_cast<std::size_t>(std::popcount(static_cast<std::uint32_t>(reach)));
        }
    }
    for (; id < logits.size(); ++id) {
        ids[n] = static_cast<std::uint32_t>(id);
        n += logits[id] >= bound ? 1 : 0;
    }
    return n;
}
#endif

Extent take_maxima(std::span<const float> logits, std::size_t stride, float* best, Lanes lanes) {
#if defined(__x86_64__)
    if (lanes == Lanes::Avx512) return take_maxima_avx512(logits, stride, best);
    if (lanes == Lanes::Avx2) return take_maxima_avx2(logits, stride, best);
#endif
    CHECK(lanes == Lanes::Portable);
    return take_maxima_in_lanes(logits, stride, best);
}

std::size_t find_reaching(std::span<const float> logits, float bound, std::uint32_t* ids, Lanes lanes) {
#if defined(__x86_64__)
    if (lanes == Lanes::Avx512) return find_reaching_avx512(logits, bound, ids);
#endif
    return find_reaching_portable(logits, bound, ids);
}

}  // namespace

BestBlocks::BestBlocks(std::size_t vocab, Lanes lanes)
    : lanes_(lanes),
      vocab_(vocab),
      stride_((vocab + kBlock * kLanes - 1) / (kBlock * kLanes) * kLanes),
      best_(stride_),
      ids_(vocab) {
    sorted_.reserve(best_.size());
}

float BestBlocks::scan(std::span<const float> logits) {
    CHECK(logits.size() == vocab_, "{} logits for a vocabulary of {}", logits.size(), vocab_);
    logits_ = logits;
    const Extent extent = take_maxima(logits, stride_, best_.data(), lanes_);
    lowest_ = extent.lowest;
    return greatest_ = extent.greatest;
}

float BestBlocks::bound(std::size_t k) {
    CHECK(k > 0, "the best {} of a row", k);
    if (k >= best_.size()) return kImpossible;
    const float range = std::min(greatest_ - lowest_, kWidest);
    if (!std::isfinite(greatest_) || !(range > kNarrowest * (1.0F + std::abs(greatest_)))) return exact_bound(k);
    const float scale = static_cast<float>(kSteps - 1) / range;
    const auto step_of = [&](float value) {
        return static_cast<std::size_t>(
            static_cast<std::int32_t>(std::min((greatest_ - value) * scale, static_cast<float>(kSteps - 1))));
    };
    std::array<std::uint32_t, kSteps> counts{};
    for (const float value : best_) ++counts[step_of(value)];
    std::size_t step = 0;
    std::size_t reached = counts[0];
    while (reached < k) reached += counts[++step];
    // A few maxima far below the others, for example of padding, make the steps so wide that most maxima fall into one.
    if (step == kSteps - 1 || reached > kMostTooMany * k) return exact_bound(k);
    // The lower edge of the step, lowered a little for rounding: all counted maxima reach it.
    const float depth = static_cast<float>(step + 1) / scale;
    return greatest_ - depth - kNarrowest * (depth + std::abs(greatest_));
}

float BestBlocks::exact_bound(std::size_t k) {
    sorted_ = best_;
    const auto kth = sorted_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::ranges::nth_element(sorted_, kth, std::greater<>());
    return *kth;
}

std::span<const std::uint32_t> BestBlocks::reaching(float bound) {
    const float least = std::max(bound, std::numeric_limits<float>::lowest());  // -inf cannot be drawn
    return {ids_.data(), find_reaching(logits_, least, ids_.data(), lanes_)};
}

}  // namespace slipstream
