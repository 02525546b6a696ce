#include "draft/control/pass_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Exponent: for a size of double or half its nodes a measured pass weighs 2^-kNearness.
constexpr double kNearness = 2.0;
constexpr double kForgetting = 0.95;  // factor per pass by which the weight of earlier passes decays
constexpr double kLately = 0.2;       // weight from which a size counts as recently measured: up to 31 passes ago
// Most extra time of trying a larger size, as a fraction of the time since the last try.
constexpr double kTry = 0.01;
// Exponent: if a new measurement changes the ratio measured / planned of its size, the ratio of another size with
// weight w (Size::weight, its recency) moves by 1 - w^kSameTime of that change.
constexpr double kSameTime = 4.0;
constexpr double kSurprise = 1.3;  // measured / planned above which a plain pass is wanted
// Factor: if (tokens of the sequence + 256) changed by more, the plan is asked again.
constexpr double kReplanned = 1.125;

}  // namespace

double PassCurve::Size::ratio() const {
    std::array<double, kKept> sorted = ratios;
    const auto kept = std::min<std::size_t>(n, kKept);
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(kept));
    return sorted[(kept - 1) / 2];
}

PassCurve::PassCurve(std::int64_t max_nodes, PlannedSeconds plan) : plan_(std::move(plan)) {
    CHECK(max_nodes >= 1, "{} nodes", max_nodes);
    for (std::int64_t n = 1; n < max_nodes; n = n < 4 ? n + 1 : n < 16 ? n + 4 : n + n / 2) sizes_.push_back(n);
    sizes_.push_back(max_nodes);
    seen_.resize(sizes_.size());
    seconds_.resize(sizes_.size());
    refresh();
}

void PassCurve::move_to(std::int64_t text_tokens) {
    text_tokens_ = text_tokens;
    const auto now = static_cast<double>(text_tokens + 256);
    const auto then = static_cast<double>(planned_for_ + 256);
    if (now > kReplanned * then || kReplanned * now < then) refresh();
}

void PassCurve::refresh() {
    planned_for_ = text_tokens_;
    if (plan_)
        for (std::size_t i = 0; i < sizes_.size(); ++i)
            if (const double planned = plan_(sizes_[i], text_tokens_); planned > 0.0 && std::isfinite(planned))
                seen_[i].planned = planned;
    predict();
}

std::size_t PassCurve::nearest(std::int64_t n_nodes) const {
    const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, n_nodes) - sizes_.begin());
    if (above == 0 || sizes_[above] == n_nodes) return above;
    return sizes_[above] - n_nodes <= n_nodes - sizes_[above - 1] ? above : above - 1;
}

void PassCurve::add(std::int64_t n_nodes, double seconds) {
    if (n_nodes < 1 || n_nodes > max_nodes() || !(seconds > 0.0) || !std::isfinite(seconds)) return;
    Size& size = seen_[nearest(n_nodes)];
    if (n_nodes > sizes_[largest_seen()]) since_try_ = -seconds;
    const bool any = std::ranges::any_of(seen_, [](const Size& other) { return other.n > 0; });
    // A pass that took far longer than predicted was probably preempted: it counts as kDoubt times the prediction.
    const double counted = any || plan_ ? std::min(seconds, kDoubt * at(n_nodes)) : seconds;
    const double planned = plan_ ? size.planned * at(n_nodes) / at(sizes_[nearest(n_nodes)]) : size.planned;
    for (Size& other : seen_) other.weight *= kForgetting;
    const double before = size.n > 0 ? size.ratio() : 0.0;
    size.ratios[size.n++ % kKept] = std::log(counted / planned);
    size.weight = 1.0;
    const double moved = size.n > 1 ? size.ratio() - before : 0.0;
    for (Size& other : seen_)
        for (double& ratio : other.ratios) ratio += moved * (1.0 - std::pow(other.weight, kSameTime));
    since_try_ += seconds;
    predict();
}

std::size_t PassCurve::largest_seen() const {
    std::size_t largest = 0;
    for (std::size_t i = 0; i < seen_.size(); ++i)
        if (seen_[i].weight >= kLately) largest = i;
    return largest;
}

// Corrects the plan's figure for each size by the mean ratio of the measured sizes, weighted by nearness and recency.
void PassCurve::predict() {
    const bool any = std::ranges::any_of(seen_, [](const Size& size) { return size.n > 0; });
    if (!any && !plan_) return;
    const std::size_t largest = largest_seen();
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
        double sum = 0.0;
        double weights = 0.0;
        for (std::size_t j = 0; j < sizes_.size() && any; ++j) {
            if (seen_[j].n == 0) continue;
            const double octaves = std::abs(std::log2(static_cast<double>(sizes_[i]) / static_cast<double>(sizes_[j])));
            const double weight = (seen_[j].weight + 1e-9) * std::exp2(-kNearness * octaves);
            sum += weight * seen_[j].ratio();
            weights += weight;
        }
        double seconds = seen_[i].planned * (weights > 0.0 ? std::exp(sum / weights) : 1.0);
        const bool untried = any && plan_ && i > largest && sizes_[i] <= 2 * sizes_[largest];
        if (untried && seconds - seconds_[largest] <= kTry * since_try_)
            seconds = std::max(seconds_[largest], seconds / kDoubt);
        seconds_[i] = seconds;
    }
    // If a pass of more nodes took less time, the smaller pass was delayed.
    for (std::size_t i = sizes_.size() - 1; i > 0; --i) seconds_[i - 1] = std::min(seconds_[i - 1], seconds_[i]);
}

double PassCurve::at(std::int64_t n_nodes) const {
    CHECK(n_nodes >= 1 && n_nodes <= max_nodes(), "{} nodes of at most {}", n_nodes, max_nodes());
    const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, n_nodes) - sizes_.begin());
    if (sizes_[above] == n_nodes) return seconds_[above];
    const double part =
        static_cast<double>(n_nodes - sizes_[above - 1]) / static_cast<double>(sizes_[above] - sizes_[above - 1]);
    return seconds_[above - 1] + part * (seconds_[above] - seconds_[above - 1]);
}

double PassCurve::best_growth(std::int64_t n_nodes, double node_worth, std::int64_t most_nodes) const {
    CHECK(n_nodes <= most_nodes && most_nodes <= max_nodes(), "{} to {} nodes of {}", n_nodes, most_nodes, max_nodes());
    const double now = at(n_nodes);
    double best = 0.0;
    // The curve is linear between sizes, so the maximum is at a size or at an end.
    const auto try_size = [&](std::int64_t n, double seconds) {
        best = std::max(best, node_worth * static_cast<double>(n - n_nodes) - (seconds - now));
    };
    for (std::size_t i = 0; i < sizes_.size() && sizes_[i] < most_nodes; ++i)
        if (sizes_[i] > n_nodes) try_size(sizes_[i], seconds_[i]);
    try_size(most_nodes, at(most_nodes));
    return best;
}

bool PassCurve::wants_plain_pass(bool matters) const {
    if (!plan_ || seen_.front().weight >= kLately) return false;
    return matters || std::ranges::any_of(seen_, [](const Size& size) {
               return size.weight >= kLately && size.ratio() > std::log(kSurprise);
           });
}

}  // namespace slipstream::draft
