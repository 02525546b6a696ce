// Chooses the slot groups that a view keeps. Pure functions of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_view.h"

namespace slipstream {

/// Numbers of slot groups of a sequence and of a KV view.
struct GroupBudget {
    std::int64_t n_groups = 0;  // groups of the sequence
    std::int64_t n_kept = 0;    // groups that are kept in all; at most n_groups
    std::int64_t n_first = 0;   // first groups (sinks): kept if the last groups leave room for them
    std::int64_t n_last = 0;    // last groups: always kept, up to n_kept
    float of_next = 0.0F;  // fraction of a group's score that counts for the next group, if that one's own is lower
};

/// Writes the kept groups to `out` [n_kept], ascending: the first ones, the last ones, and of those between them the
/// ones with the highest `scores`, ties to the lower group. `scores` [n_groups] may lack the last n_last groups. NaN is
/// the lowest score. `order` is scratch memory.
void choose_groups(std::span<const float> scores, const GroupBudget& budget, std::vector<std::int32_t>& order,
                   std::span<std::int32_t> out);

/// Computes the scores of groups for a kv head: out = keep * out + pooled scores; keep = 0 overwrites. `out`:
/// [n_groups]. `scores`: [n_heads, stride], of the query heads that share the kv head. Mass: each head's fractions of
/// attention, summed over the heads; `sinks` [n_heads] (empty: none) take their fractions first. Mean: the sum of
/// scores. (The queries of a query group are pooled, since they read
/// the same keys and one choice serves them all.)
void pool_scores(GroupScore score, std::span<const float> scores, std::int64_t n_heads, std::int64_t stride, float keep,
                 std::span<float> out, std::span<const float> sinks = {});

}  // namespace slipstream
