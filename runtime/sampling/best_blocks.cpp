#include "runtime/sampling/best_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/base/check.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace slipstream {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kSteps = 64;
constexpr float kWidest = 64.0F;         // from the greatest down: what lies below is counted as one
constexpr float kNarrowest = 1e-6F;      // relative and absolute: less is not told apart
constexpr std::size_t kMostTooMany = 4;  // times those that are wanted, by counting

#if defined(__x86_64__)
// A bit for every logit of a whole block that is at least `bound` and above -inf.
std::uint32_t reaching_of_block(const float* logits, float bound) {
    static_assert(kGreatestBlock == 16);
    const __m128 bounds = _mm_set1_ps(bound);
    const __m128 nothing = _mm_set1_ps(kImpossible);
    std::uint32_t bits = 0;
    for (int part = 0; part < 4; ++part) {
        const __m128 values = _mm_loadu_ps(logits + 4 * part);
        const __m128 reach = _mm_and_ps(_mm_cmpge_ps(values, bounds), _mm_cmpgt_ps(values, nothing));
        bits |= static_cast<std::uint32_t>(_mm_movemask_ps(reach)) << (4 * part);
    }
    return bits;
}
#endif

}  // namespace

BestBlocks::BestBlocks(std::size_t vocab) : best_((vocab + kGreatestBlock - 1) / kGreatestBlock), ids_(vocab) {
    sorted_.reserve(best_.size());
}

float BestBlocks::look(std::span<const float> logits) {
    CHECK(logits.size() == ids_.size(), "{} logits for a vocabulary of {}", logits.size(), ids_.size());
    logits_ = logits;
    const std::size_t n_whole = logits.size() / kGreatestBlock;
    for (std::size_t block = 0; block < n_whole; ++block)
        best_[block] = greatest_of_block(logits.data() + block * kGreatestBlock);
    if (n_whole < best_.size()) best_.back() = greatest_of(logits.subspan(n_whole * kGreatestBlock));
    return greatest_ = greatest_of(best_);
}

float BestBlocks::bound(std::size_t k) {
    CHECK(k > 0, "the best {} of a row", k);
    if (k >= best_.size()) return kImpossible;
    const float lowest = *std::ranges::min_element(best_);
    const float range = std::min(greatest_ - lowest, kWidest);
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
    // A few maxima that lie far below the others, as of padding, make steps so wide that most fall into one.
    if (step == kSteps - 1 || reached > kMostTooMany * k) return exact_bound(k);
    // The step's lower edge, and a little below it for the rounding: no maximum that was counted lies beneath.
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
    std::size_t n = 0;
    for (std::size_t block = 0; block < best_.size(); ++block) {
        if (!(best_[block] >= bound)) continue;
        const std::size_t begin = block * kGreatestBlock;
        const std::size_t end = std::min(begin + kGreatestBlock, logits_.size());
#if defined(__x86_64__)
        if (end - begin == kGreatestBlock) {
            // Few of a block reach the bound: one bit each, and a step for every bit that is set.
            for (std::uint32_t bits = reaching_of_block(logits_.data() + begin, bound); bits != 0; bits &= bits - 1)
                ids_[n++] = static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(std::countr_zero(bits));
            continue;
        }
#endif
        for (std::size_t id = begin; id < end; ++id) {
            ids_[n] = static_cast<std::uint32_t>(id);
            n += logits_[id] >= bound && logits_[id] > kImpossible ? 1 : 0;
        }
    }
    return {ids_.data(), n};
}

}  // namespace slipstream
