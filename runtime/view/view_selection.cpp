#include "runtime/view/view_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"

namespace slipstream {

void choose_groups(std::span<const float> scores, const GroupBudget& budget, std::vector<std::int32_t>& order,
                   std::span<std::int32_t> out) {
    const std::int64_t n_last = std::min(budget.n_last, budget.n_kept);
    const std::int64_t n_first = std::min(budget.n_first, budget.n_kept - n_last);
    const std::int64_t n_best = budget.n_kept - n_first - n_last;
    CHECK(budget.n_kept >= 0 && budget.n_kept <= budget.n_groups && std::ssize(out) == budget.n_kept &&
              (n_best == 0 || std::ssize(scores) >= budget.n_groups - n_last),
          "{} of {} groups, {} scores, room for {}", budget.n_kept, budget.n_groups, scores.size(), out.size());
    const auto value = [&](std::int32_t group) {
        const float own = scores[group];
        const float before = group > n_first ? budget.of_next * scores[group - 1] : own;
        const float score = budget.of_next > 0.0F && before > own ? before : own;
        return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
    };
    order.resize(budget.n_groups - n_first - n_last);
    std::iota(order.begin(), order.end(), static_cast<std::int32_t>(n_first));
    if (n_best > 0 && n_best < std::ssize(order))
        std::nth_element(order.begin(), order.begin() + n_best, order.end(), [&](std::int32_t a, std::int32_t b) {
            return value(a) != value(b) ? value(a) > value(b) : a < b;
        });
    std::iota(out.begin(), out.begin() + n_first, 0);
    std::copy_n(order.begin(), n_best, out.begin() + n_first);
    std::sort(out.begin() + n_first, out.begin() + n_first + n_best);
    std::iota(out.end() - n_last, out.end(), static_cast<std::int32_t>(budget.n_groups - n_last));
}

void pool_scores(GroupScore score, std::span<const float> scores, std::int64_t n_heads, std::int64_t stride, float keep,
                 std::span<float> out, std::span<const float> sinks) {
    for (float& value : out) value = std::isfinite(value) ? keep * value : 0.0F;
    for (std::int64_t head = 0; head < n_heads; ++head) {
        const std::span<const float> row = scores.subspan(head * stride, out.size());
        if (score == GroupScore::Mean) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += row[i];
            continue;
        }
        // The softmax of a head's log sums gives its fractions of attention.
        float most = *std::ranges::max_element(row);
        if (!sinks.empty()) most = std::max(most, sinks[head]);
        double all = sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[head] - most));
        for (const float log_sum : row) all += std::exp(static_cast<double>(log_sum - most));
        const auto scale = static_cast<float>(1.0 / all);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += std::exp(row[i] - most) * scale;
    }
}

}  // namespace slipstream
