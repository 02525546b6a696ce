// Puts few logits in order without a comparison that decides where to go on: each counts those that stand before it,
// which becomes vectors, where a sort waits for its guesses of the outcome.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/loop/sampling/lanes.h"

namespace slipstream {

/// So many are counted faster than sorted.
inline constexpr std::size_t kFewToSort = 128;

struct FewLogits {
    alignas(64) std::array<float, kFewToSort> logits;
    alignas(64) std::array<std::int32_t, kFewToSort> places;
};

/// `few.places[j]` becomes how many of the first `n` (<= kFewToSort) logits stand before the j-th, j < n: the greater
/// ones, of equals the earlier. None is NaN. What lies behind the n-th is written over.
void count_better(FewLogits& few, std::size_t n, Lanes lanes = widest_lanes());

}  // namespace slipstream
