#include "draft/pass_times.h"

#include <algorithm>
#include <cstddef>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr double kRate = 0.15;      // of what a pass moves its size's time
constexpr double kSlowRate = 0.03;  // where it took far longer than expected
constexpr double kFarLonger = 1.5;

}  // namespace

PassTimes::PassTimes(std::int64_t max_nodes) {
    CHECK(max_nodes >= 1, "{} nodes", max_nodes);
    for (std::int64_t n = 1; n < max_nodes; n = n < 4 ? n + 1 : n < 16 ? n + 4 : n + n / 2) sizes_.push_back(n);
    sizes_.push_back(max_nodes);
    measured_.resize(sizes_.size());
    seconds_.resize(sizes_.size());
}

bool PassTimes::measured() const {
    return std::ranges::any_of(measured_, [](double seconds) { return seconds > 0.0; });
}

void PassTimes::add(std::int64_t n_nodes, double seconds) {
    if (n_nodes < 1 || n_nodes > max_nodes() || seconds <= 0.0) return;
    const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, n_nodes) - sizes_.begin());
    // A size between two kept ones moves both by what it took over what was expected.
    const std::size_t below = sizes_[above] == n_nodes ? above : above - 1;
    const double expected = measured() ? at(n_nodes) : 0.0;
    for (std::size_t i = below; i <= above; ++i) {
        double& kept = measured_[i];
        if (kept == 0.0) {
            kept = expected > 0.0 ? seconds_[i] * seconds / expected : seconds;
        } else {
            kept += (seconds > kFarLonger * expected ? kSlowRate : kRate) * kept * (seconds / expected - 1.0);
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
    for (std::size_t i = 1; i < sizes_.size(); ++i) seconds_[i] = std::max(seconds_[i], seconds_[i - 1]);
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
