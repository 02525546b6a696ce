// Which groups of a text a view keeps: pure, numbers in and numbers out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_view.h"

namespace slipstream {

/// How many groups of a text are kept.
struct GroupBudget {
    std::int64_t n_groups = 0;  // of the text
    std::int64_t n_kept = 0;    // in all, at most n_groups
    std::int64_t n_first = 0;   // sinks: always kept, where the last leave room for them
    std::int64_t n_last = 0;    // always kept
    float of_next = 0.0F;       // of a group's score that the next one counts, if its own is lower
};

/// The kept groups into `out` [n_kept], ascending: the first, the last, and of those between the ones with the highest
/// `scores` [n_groups], which may leave out the last, ties to the lower group. `order` is memory to work in. A score
/// that is no number counts least.
void choose_groups(std::span<const float> scores, const GroupBudget& budget, std::vector<std::int32_t>& order,
                   std::span<std::int32_t> out);

/// What groups are worth to a kv head: `out` [n_groups] from the scores of the query heads that share it, `scores`
/// [n_heads, stride]. Mass: each head's shares of attention, summed over heads. Mean: the sum. (Queries of a group
/// pooled: the heads read the same keys, so one choice serves them all.) Of what is in `out` `keep` times stays: 0
/// overwrites it.
void pool_scores(GroupScore score, std::span<const float> scores, std::int64_t n_heads, std::int64_t stride, float keep,
                 std::span<float> out);

}  // namespace slipstream
