// Sorts few logits without data-dependent branches: counts for each logit how many are better. This vectorises, whereas
// a sort stalls on mispredicted branches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/loop/sampling/lanes.h"

namespace slipstream {

/// Up to this many logits, counting is faster than sorting.
inline constexpr std::size_t kFewToSort = 128;

struct FewLogits {
    alignas(64) std::array<float, kFewToSort> logits;
    alignas(64) std::array<std::int32_t, kFewToSort> places;
};

/// Sets `few.places[j]`, j < n, to the number of the first `n` (<= kFewToSort, CHECKed) logits that come before the
/// j-th: the greater ones, and equal ones with a lower index. No logit may be NaN. Overwrites logits and places past
/// the n-th.
void count_better(FewLogits& few, std::size_t n, Lanes lanes = widest_lanes());

}  // namespace slipstream
