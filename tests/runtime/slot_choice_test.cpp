// Which experts get slots: by count, from the one of the lowest count, never from one that the pass needs.
#include "runtime/experts/slot_choice.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Layer {
    std::vector<float> counts;
    std::vector<std::uint8_t> held;
    std::int64_t n_free = 0;

    [[nodiscard]] std::vector<SlotTake> takes(const std::vector<std::uint16_t>& needed,
                                              std::int64_t most_replaced = 1) const {
        std::vector<SlotTake> takes{{7, 7}};  // of an earlier call
        choose_slots({counts, held, needed, n_free, most_replaced}, takes);
        return takes;
    }
};

TEST(ExpertCounts, DecayWithEachTokenAndGrowByOne) {
    ExpertCounts counts(3);
    counts.add(std::vector<std::uint16_t>{0, 2});
    counts.add(std::vector<std::uint16_t>{2});
    EXPECT_THAT(counts.counts(), ElementsAre(0.98F, 0.0F, 0.98F + 1.0F));
    for (int i = 0; i < 2000; ++i) counts.add(std::vector<std::uint16_t>{1});
    EXPECT_NEAR(counts.counts()[1], 50.0, 1e-2);  // 1 / (1 - 0.98)
    EXPECT_LT(counts.counts()[0], 1e-6);
}

TEST(SlotChoice, TakesTheSlotOfTheLowestCountOnceItIsAQuarterHigher) {
    Layer layer{{3.0F, 0.5F, 0.75F, 1.0F}, {1, 1, 0, 0}};
    EXPECT_THAT(layer.takes({2}), ElementsAre(SlotTake{2, 1}));
    layer.counts[2] = std::nextafter(0.75F, 0.0F);
    EXPECT_THAT(layer.takes({2}), IsEmpty());
    EXPECT_THAT(layer.takes({2, 3}), ElementsAre(SlotTake{3, 1})) << "the one of the higher count";
    EXPECT_THAT(layer.takes({0, 1}), IsEmpty()) << "they have slots";
}

TEST(SlotChoice, TiesGoToTheLowerId) {
    const Layer layer{{1.0F, 1.0F, 2.0F, 2.0F}, {1, 1, 0, 0}};
    EXPECT_THAT(layer.takes({2, 3}), ElementsAre(SlotTake{2, 0}));
    EXPECT_THAT(layer.takes({3, 2}, 2), ElementsAre(SlotTake{2, 0}, SlotTake{3, 1}));
}

TEST(SlotChoice, LeavesWhatThePassNeeds) {
    const Layer layer{{0.1F, 0.2F, 2.0F, 3.0F}, {1, 1, 0, 0}};
    EXPECT_THAT(layer.takes({0, 2}), ElementsAre(SlotTake{2, 1}));
    EXPECT_THAT(layer.takes({0, 1, 2, 3}), IsEmpty()) << "more are needed than there are slots";
    EXPECT_THAT(layer.takes({0, 2, 3}, 2), ElementsAre(SlotTake{3, 1})) << "no victim is left for the second";
    EXPECT_THAT(layer.takes({2, 3}, 0), IsEmpty());
}

TEST(SlotChoice, FillsFreeSlotsByCount) {
    const Layer layer{{1.0F, 0.5F, 1.0F, 0.9F}, {0, 0, 0, 1}, 2};
    EXPECT_THAT(layer.takes({0, 1, 2}), ElementsAre(SlotTake{0}, SlotTake{2})) << "1 is below 3";
    EXPECT_THAT(layer.takes({1}), ElementsAre(SlotTake{1}));
    const Layer full{{1.0F, 0.5F, 1.0F, 0.1F}, {0, 0, 0, 1}, 2};
    EXPECT_THAT(full.takes({0, 1, 2}), ElementsAre(SlotTake{0}, SlotTake{2}, SlotTake{1, 3}));
}

}  // namespace
}  // namespace slipstream
