#include "runtime/sampling/best_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kSteps = 64;
constexpr float kWidest = 64.0F;     // from the greatest down: what lies below is counted as one
constexpr float kNarrowest = 1e-6F;  // relative and absolute: less is not told apart

}  // namespace

BestBlocks::BestBlocks(std::size_t vocab) : best_((vocab + kGreatestBlock - 1) / kGreatestBlock), ids_(vocab + 1) {
    sorted_.reserve(best_.size());
}

float BestBlocks::look(std::span<const float> logits) {
    CHECK(logits.size() + 1 == ids_.size(), "{} logits for a vocabulary of {}", logits.size(), ids_.size() - 1);
    logits_ = logits;
    const std::size_t n_whole = logits.size() / kGreatestBlock;
    for (std::size_t block = 0; block < n_whole; ++block)
        best_[block] = greatest_of_block(logits.data() + block * kGreatestBlock);
    if (n_whole < best_.size()) best_.back() = greatest_of(logits.subspan(n_whole * kGreatestBlock));
    return greatest_ = greatest_of(best_);
}

float BestBlocks::bound(std::size_t k) {
    if (k >= best_.size()) return kImpossible;
    const float lowest = *std::ranges::min_element(best_);
    const float range = std::min(greatest_ - lowest, kWidest);
    if (!std::isfinite(greatest_) || !(range > kNarrowest * (1.0F + std::abs(greatest_)))) {
        sorted_ = best_;
        const auto kth = sorted_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
        std::ranges::nth_element(sorted_, kth, std::greater<>());
        return *kth;
    }
    const float scale = static_cast<float>(kSteps - 1) / range;
    const auto step_of = [&](float value) {
        return static_cast<std::size_t>(
            static_cast<std::int32_t>(std::min((greatest_ - value) * scale, static_cast<float>(kSteps - 1))));
    };
    std::array<std::uint32_t, kSteps> counts{};
    for (const float value : best_) ++counts[step_of(value)];
    std::size_t step = 0;
    for (std::size_t reached = counts[0]; reached < k; reached += counts[step]) ++step;
    float bound = greatest_;
    for (const float value : best_) bound = step_of(value) <= step ? std::min(bound, value) : bound;
    return bound;
}

std::span<const std::uint32_t> BestBlocks::reaching(float bound) {
    std::size_t n = 0;
    for (std::size_t block = 0; block < best_.size(); ++block) {
        if (!(best_[block] >= bound)) continue;
        const std::size_t end = std::min((block + 1) * kGreatestBlock, logits_.size());
        for (std::size_t id = block * kGreatestBlock; id < end; ++id) {
            ids_[n] = static_cast<std::uint32_t>(id);
            n += logits_[id] >= bound && logits_[id] > kImpossible ? 1 : 0;
        }
    }
    return {ids_.data(), n};
}

}  // namespace slipstream
