// The pass-time curve in a loop that makes the trees it takes to be best: where the plan's shape is wrong, the right
// size is found, and what finding it costs is bounded.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "draft/control/pass_curve.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kMost = 64;

// Tokens that a tree of so many nodes commits: each node brings a little less than the one before.
double tokens_of(std::int64_t n_nodes) {
    return 1.0 + 3.0 * (1.0 - std::exp(-static_cast<double>(n_nodes - 1) / 16.0));
}

double planned(std::int64_t n_nodes) {
    return 0.02 + 0.0005 * static_cast<double>(n_nodes);
}

// Sizes with the best tokens a second, by what `seconds` says of each.
std::int64_t best_size(const std::function<double(std::int64_t)>& seconds) {
    std::int64_t best = 1;
    for (std::int64_t n = 2; n <= kMost; ++n)
        if (tokens_of(n) / seconds(n) > tokens_of(best) / seconds(best)) best = n;
    return best;
}

class Loop {
public:
    Loop(const std::function<double(std::int64_t)>& plan, std::function<double(std::int64_t)> truth)
        : curve(kMost, [plan](std::int64_t n, std::int64_t) { return plan(n); }), truth_(std::move(truth)) {}

    /// One pass; its size.
    std::int64_t pass() {
        std::int64_t n = best_size([&](std::int64_t size) { return curve.at(size); });
        const bool gains_little = tokens_of(n) / truth_(n) < 1.3 / curve.at(1);
        if (curve.wants_plain_pass(gains_little)) n = 1;
        curve.add(n, truth_(n));
        seconds += truth_(n);
        tokens += tokens_of(n);
        sizes.push_back(n);
        return n;
    }
    /// Tokens a second of the passes behind the first `n_passed`, beside those of the best size.
    [[nodiscard]] double efficiency_behind(std::size_t n_passed) const {
        double sum_tokens = 0.0;
        double sum_seconds = 0.0;
        for (std::size_t i = n_passed; i < sizes.size(); ++i) {
            sum_tokens += tokens_of(sizes[i]);
            sum_seconds += truth_(sizes[i]);
        }
        const std::int64_t best = best_size(truth_);
        return sum_tokens / sum_seconds / (tokens_of(best) / truth_(best));
    }

    PassCurve curve;
    double seconds = 0.0;
    double tokens = 0.0;
    std::vector<std::int64_t> sizes;

private:
    std::function<double(std::int64_t)> truth_;
};

TEST(PassCurveLoop, ARightPlanIsKeptTo) {
    Loop loop(planned, planned);
    for (int i = 0; i < 300; ++i) loop.pass();
    EXPECT_GT(loop.efficiency_behind(0), 0.97);
}

TEST(PassCurveLoop, SizesThatCostThreeTimesThePlanAreLeftWithinFivePasses) {
    // From 17 nodes on, or from 5 on: a step that the plan does not know.
    for (const std::int64_t dear_from : {17, 5}) {
        const auto truth = [=](std::int64_t n) { return (n >= dear_from ? 3.0 : 1.0) * planned(n); };
        Loop loop(planned, truth);
        for (int i = 0; i < 5; ++i) loop.pass();
        for (int i = 0; i < 200; ++i) loop.pass();
        EXPECT_GT(loop.efficiency_behind(5), 0.8) << dear_from;
        const auto again =
            std::count_if(loop.sizes.begin() + 5, loop.sizes.end(), [=](std::int64_t n) { return n >= dear_from; });
        EXPECT_LE(again, 6) << dear_from;
    }
}

TEST(PassCurveLoop, CheaperLargeSizesAreTriedAsSoonAsAHundredthOfTheTimePaysForIt) {
    // The plan takes nodes for dear: small trees are made.
    const auto plan = [](std::int64_t n) { return n <= 4 ? 0.02 : 0.09 + 0.001 * static_cast<double>(n); };
    PassCurve curve(kMost, [=](std::int64_t n, std::int64_t) { return plan(n); });
    const double extra = plan(8) - plan(4);
    double seconds = 0.0;
    while (seconds < 0.98 * extra / 0.01) {
        ASSERT_DOUBLE_EQ(curve.at(8), plan(8)) << "after " << seconds << " s";
        curve.add(4, plan(4));
        seconds += plan(4);
    }
    while (seconds < 1.02 * extra / 0.01) {
        curve.add(4, plan(4));
        seconds += plan(4);
    }
    EXPECT_NEAR(curve.at(8), plan(8) / PassCurve::kDoubt, 1e-9);
    EXPECT_GE(curve.at(8), curve.at(4));
    EXPECT_NEAR(curve.at(24), plan(24), 1e-9) << "up to twice the largest size seen, no further";
    // One try, and the plan was right: as before, until a hundredth of the time pays for the next.
    curve.add(8, plan(8));
    for (int i = 0; i < 100; ++i) curve.add(4, plan(4));
    EXPECT_NEAR(curve.at(8), plan(8), 0.05 * plan(8));
}

TEST(PassCurveLoop, NodesThatCostAThirdOfThePlanAreFound) {
    // By the plan a second node takes more than it brings; in truth nodes cost a third of that.
    const auto plan = [](std::int64_t n) { return 0.02 + 0.006 * static_cast<double>(n - 1); };
    const auto truth = [](std::int64_t n) { return 0.02 + 0.002 * static_cast<double>(n - 1); };
    Loop loop(plan, truth);
    EXPECT_EQ(loop.pass(), 1);
    // Each try of twice the size waits for a hundred times what it may cost.
    while (loop.seconds < 100.0 * plan(64)) loop.pass();
    const std::size_t n_passed = loop.sizes.size();
    for (int i = 0; i < 200; ++i) loop.pass();
    // Small trees of the plan stay in view: 0.89 of the best.
    EXPECT_GT(loop.efficiency_behind(n_passed), 0.85);
    EXPECT_GE(*std::max_element(loop.sizes.begin(), loop.sizes.end()), 4);
}

TEST(PassCurveLoop, TriesCostLittleWhereThePlanIsRight) {
    const auto plan = [](std::int64_t n) { return n <= 4 ? 0.02 : 0.09 + 0.001 * static_cast<double>(n); };
    Loop loop(plan, plan);
    for (int i = 0; i < 5000; ++i) loop.pass();
    EXPECT_GT(loop.efficiency_behind(0), 0.97);
}

}  // namespace
}  // namespace slipstream::draft
