// Places by counting against a stable sort.
#include "runtime/loop/sampling/best_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check(const std::vector<float>& logits) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    for (const Lanes lanes : {Lanes::Portable, Lanes::Avx2, Lanes::Avx512}) {
        if (lanes > widest_lanes()) continue;
        FewLogits few;
        few.logits.fill(1e30F);  // behind the last: must not count
        few.places.fill(77);
        std::ranges::copy(logits, few.logits.begin());
        count_better(few, logits.size(), lanes);
        for (std::size_t place = 0; place < order.size(); ++place)
            EXPECT_EQ(few.places[order[place]], static_cast<std::int32_t>(place))
                << order[place] << " of " << order.size() << ", lanes " << static_cast<int>(lanes);
    }
}

TEST(BestOrder, IsThatOfAStableSort) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (std::size_t n = 0; n <= kFewToSort; ++n) {
        std::vector<float> logits(n);
        for (float& logit : logits) logit = normal(random);
        check(logits);
        for (float& logit : logits) logit = static_cast<float>(random() % 4);  // many equals
        check(logits);
    }
}

TEST(BestOrder, InfinitiesAndZeros) {
    check({-kInfinity, kInfinity, 0.0F, -0.0F, -kInfinity, kInfinity, 1.0F});
    check(std::vector<float>(kFewToSort, -kInfinity));
}

}  // namespace
}  // namespace slipstream
