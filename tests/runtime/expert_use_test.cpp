// The use of experts: ranks are those before the token, hits by rank are those of the policy, and what is restored goes
// on as if nothing had been in between.
#include "runtime/experts/expert_use.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Experts = std::vector<std::uint16_t>;

/// Draws tokens that choose `n_chosen` of `n_experts`, expert i with weight 1 / (i + 1) to the power of `skew`.
class Router {
public:
    Router(std::size_t n_experts, std::size_t n_chosen, double skew, unsigned seed = 1)
        : n_chosen_(n_chosen), random_(seed) {
        for (std::size_t i = 0; i < n_experts; ++i)
            weights_.push_back(std::pow(1.0 / static_cast<double>(i + 1), skew));
    }
    Experts next() {
        std::vector<double> left = weights_;
        Experts chosen;
        while (chosen.size() < n_chosen_) {
            std::discrete_distribution<int> draw(left.begin(), left.end());
            const int expert = draw(random_);
            left[expert] = 0.0;
            chosen.push_back(static_cast<std::uint16_t>(expert));
        }
        return chosen;
    }

private:
    std::vector<double> weights_;
    std::size_t n_chosen_;
    std::mt19937 random_;
};

TEST(ExpertUse, NotesRanksBeforeTheTokenCounts) {
    ExpertUse use(4);
    for (std::uint64_t i = 0; i < ExpertUse::kSettlingTokens; ++i) use.add(Experts{2});
    EXPECT_THAT(use.ranks(), Each(0.0F)) << "counts have to settle first";
    use.add(Experts{2});
    EXPECT_THAT(use.ranks(), ElementsAre(1.0F, 0.0F, 0.0F, 0.0F));
    use.add(Experts{0});  // never chosen, so no slot has ever held it
    const float kept = ExpertUse::kRankDecay;
    EXPECT_THAT(use.ranks(), ElementsAre(kept, 0.0F, 0.0F, 1.0F));
    use.add(Experts{0, 2});
    EXPECT_THAT(use.ranks(), ElementsAre(kept * kept + 1.0F, 1.0F, 0.0F, kept));
    EXPECT_EQ(use.n_tokens(), ExpertUse::kSettlingTokens + 3);
}

TEST(ExpertUse, LeavesOutTokensOfWhichNothingIsKnown) {
    ExpertUse use(4);
    for (int i = 0; i < 60; ++i) use.add(Experts{1});
    const std::vector<float> ranks(use.ranks().begin(), use.ranks().end());
    use.add({});
    EXPECT_EQ(use.n_tokens(), 60U);
    EXPECT_THAT(use.ranks(), testing::ElementsAreArray(ranks));
}

TEST(ExpertUse, HasHitsOnceThereAreEnoughTokens) {
    Router router(16, 2, 1.0);
    ExpertUse use(16);
    for (std::uint64_t i = 0; i < ExpertUse::kSettlingTokens + ExpertUse::kLeastRankedTokens; ++i) {
        EXPECT_THAT(use.hits(), IsEmpty());
        use.add(router.next());
    }
    const std::vector<double> hits = use.hits();
    ASSERT_THAT(hits, SizeIs(17));
    EXPECT_EQ(hits.front(), 0.0);
    EXPECT_EQ(hits.back(), 1.0);
    EXPECT_TRUE(std::ranges::is_sorted(hits));
    // Of two experts that differ, one at most has the only slot.
    EXPECT_LE(hits[1], 0.5);
}

// Replays slots by choose_slots(), as PassStream gives them, beside the ranks.
TEST(ExpertUse, HitsAreThoseOfTheSlotsThatTokensHad) {
    constexpr std::size_t kExperts = 128;
    for (const double skew : {0.0, 0.7, 1.0}) {
        Router router(kExperts, 4, skew);
        ExpertUse use(kExperts);
        std::vector<std::size_t> n_slots{16, 32, 64};
        std::vector<std::vector<std::uint8_t>> held(3, std::vector<std::uint8_t>(kExperts, 0));
        std::vector<double> n_hits(3, 0.0);
        double n_chosen = 0.0;
        for (int token = 0; token < 6000; ++token) {
            const Experts chosen = router.next();
            ExpertCounts scores = use.counts();
            scores.add(chosen);
            const bool counts = token >= 1000;
            n_chosen += counts ? 4.0 : 0.0;
            for (std::size_t i = 0; i < n_slots.size(); ++i) {
                if (counts)
                    for (const std::uint16_t expert : chosen) n_hits[i] += held[i][expert];
                std::vector<SlotTake> takes;
                choose_slots({.counts = scores.counts(),
                              .held = held[i],
                              .needed = chosen,
                              .n_free = static_cast<std::int64_t>(n_slots[i]) - std::ranges::count(held[i], 1)},
                             takes);
                for (const SlotTake& take : takes) {
                    held[i][take.expert] = 1;
                    if (take.victim != kNoVictim) held[i][take.victim] = 0;
                }
            }
            use.add(chosen);
        }
        const std::vector<double> hits = use.hits();
        for (std::size_t i = 0; i < n_slots.size(); ++i)
            EXPECT_NEAR(hits[n_slots[i]], n_hits[i] / n_chosen, 0.02) << skew << ", " << n_slots[i] << " slots";
        // The share of the counts that the highest ones have would be far from it.
        if (skew > 0.0) continue;
        std::vector<float> counts(use.counts().counts().begin(), use.counts().counts().end());
        std::ranges::sort(counts, std::greater<>());
        double highest = 0.0, all = 0.0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            all += static_cast<double>(counts[i]);
            if (i < 32) highest += static_cast<double>(counts[i]);
        }
        EXPECT_NEAR(hits[32], 0.25, 0.02);
        EXPECT_GT(highest / all, 0.35);
    }
}

TEST(ExpertUse, GoesOnWhereItWasRestored) {
    Router router(32, 4, 1.0);
    ExpertUse whole(32);
    ExpertUse part(32);
    for (int token = 0; token < 900; ++token) {
        if (token % 77 == 0) {
            const auto restored = ExpertUse::restored(32, part.counts().counts(), part.ranks(), part.n_tokens());
            ASSERT_TRUE(restored.has_value());
            part = *restored;
        }
        const Experts chosen = router.next();
        whole.add(chosen);
        part.add(chosen);
    }
    EXPECT_THAT(part.counts().counts(), testing::ElementsAreArray(whole.counts().counts()));
    EXPECT_THAT(part.ranks(), testing::ElementsAreArray(whole.ranks()));
    EXPECT_EQ(part.hits(), whole.hits());
}

TEST(ExpertUse, IsNotRestoredFromWhatItCannotHave) {
    const std::vector<float> good{0.0F, 1.0F, 49.9F};
    EXPECT_TRUE(ExpertUse::restored(3, good, good, 7).has_value());
    EXPECT_FALSE(ExpertUse::restored(4, good, good, 7).has_value());
    EXPECT_FALSE(ExpertUse::restored(3, good, std::span(good).first(2), 7).has_value());
    EXPECT_FALSE(ExpertUse::restored(3, good, good, ~std::uint64_t{0}).has_value());
    for (const float bad : {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            51.0F * 3.0F * 4096.0F}) {
        std::vector<float> values = good;
        values[1] = bad;
        EXPECT_FALSE(ExpertUse::restored(3, values, good, 7).has_value()) << bad;
        EXPECT_FALSE(ExpertUse::restored(3, good, values, 7).has_value()) << bad;
    }
    // The bounds are above all that add() makes: one expert for ever, and one that was never chosen before.
    ExpertUse use(2);
    for (int i = 0; i < 100'000; ++i) use.add(Experts{0});
    EXPECT_TRUE(ExpertUse::restored(2, use.counts().counts(), use.ranks(), use.n_tokens()).has_value());
}

TEST(MostUsed, AreThoseOfTheHighestCounts) {
    const std::vector<float> counts{1.0F, 0.0F, 3.0F, 1.0F, 2.0F};
    EXPECT_THAT(most_used(counts, 3), ElementsAre(2, 4, 0));
    EXPECT_THAT(most_used(counts, 9), ElementsAre(2, 4, 0, 3)) << "the other one was never chosen";
    EXPECT_THAT(most_used(counts, 0), IsEmpty());
    EXPECT_THAT(most_used({}, 2), IsEmpty());
}

}  // namespace
}  // namespace slipstream
