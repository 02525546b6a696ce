#include "draft/control/pass_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr double kCommonRate = 0.1;    // of what a pass moves all times
constexpr double kOwnRate = 0.1;       // and its own size's further
constexpr double kMostSurprise = 2.0;  // a pass that took far longer had the processor taken away

bool is_known(double seconds) {
    return seconds > 0.0;
}

}  // namespace

PassTimes::PassTimes(std::int64_t max_nodes) {
    CHECK(max_nodes >= 1, "{} nodes", max_nodes);
    for (std::int64_t n = 1; n < max_nodes; n = n < 4 ? n + 1 : n < 16 ? n + 4 : n + n / 2) sizes_.push_back(n);
    sizes_.push_back(max_nodes);
    measured_.resize(sizes_.size());
    seconds_.resize(sizes_.size());
}

bool PassTimes::measured() const {
    return std::ranges::any_of(measured_, is_known);
}

void PassTimes::add(std::int64_t n_nodes, double seconds) {
    if (n_nodes < 1 || n_nodes > max_nodes() || !(seconds > 0.0) || !std::isfinite(seconds)) return;
    const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, n_nodes) - sizes_.begin());
    const std::size_t below = sizes_[above] == n_nodes ? above : above - 1;
    const auto last = std::ranges::find_if(measured_.rbegin(), measured_.rend(), is_known);
    const auto n_between = static_cast<std::size_t>(measured_.rend() - last);  // sizes up to the largest measured one
    if (n_between == 0) {
        measured_[below] = measured_[above] = seconds;
    } else {
        // Part of the surprise is the machine's, and holds for every size; part is this size's own, and all of it where
        // nothing but smaller sizes were known.
        const double expected = at(n_nodes);
        const double surprise = std::min(seconds / expected, kMostSurprise) - 1.0;
        const double common = above < n_between ? 1.0 + kCommonRate * surprise : 1.0;
        for (double& kept : measured_) kept *= common;
        for (std::size_t i = below; i <= above; ++i) {
            if (i >= n_between) {
                measured_[i] = seconds_[i] * seconds / expected;
            } else {
                const double before = measured_[i] > 0.0 ? measured_[i] : seconds_[i] * common;
                measured_[i] = before * (1.0 + kOwnRate * surprise);
            }
        }
    }
    spread();
}

// Sizes without a measurement lie between their neighbours; behind the last one a node costs as much as before it.
void PassTimes::spread() {
    std::size_t last = sizes_.size();
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
        if (measured_[i] == 0.0) continue;
        seconds_[i] = measured_[i];
        const std::size_t from = last == sizes_.size() ? 0 : last + 1;
        for (std::size_t j = from; j < i; ++j) {
            if (last == sizes_.size()) {
                seconds_[j] = seconds_[i];
                continue;
            }
            const double part =
                static_cast<double>(sizes_[j] - sizes_[last]) / static_cast<double>(sizes_[i] - sizes_[last]);
            seconds_[j] = seconds_[last] + part * (measured_[i] - seconds_[last]);
        }
        last = i;
    }
    if (last == sizes_.size()) return;
    for (std::size_t j = last + 1; j < sizes_.size(); ++j) {
        const double per_node =
            last == 0 ? 0.0
                      : std::max(0.0, (seconds_[last] - seconds_[0]) / static_cast<double>(sizes_[last] - sizes_[0]));
        seconds_[j] = seconds_[last] + per_node * static_cast<double>(sizes_[j] - sizes_[last]);
    }
    // A pass of more nodes that took less tells that the other one was held up.
    for (std::size_t i = sizes_.size() - 1; i > 0; --i) seconds_[i - 1] = std::min(seconds_[i - 1], seconds_[i]);
}

double PassTimes::at(std::int64_t n_nodes) const {
    CHECK(n_nodes >= 1 && n_nodes <= max_nodes(), "{} nodes of at most {}", n_nodes, max_nodes());
    const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, n_nodes) - sizes_.begin());
    if (sizes_[above] == n_nodes) return seconds_[above];
    const double part =
        static_cast<double>(n_nodes - sizes_[above - 1]) / static_cast<double>(sizes_[above] - sizes_[above - 1]);
    return seconds_[above - 1] + part * (seconds_[above] - seconds_[above - 1]);
}

}  // namespace slipstream::draft
