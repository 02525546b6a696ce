// The best few by noise, against a sort of all.
#include "draft/sources/best_proposals.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

TEST(BestProposals, TheyAreThoseOfASortByRank) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(1e-4F, 0.9F);
    for (int round = 0; round < 500; ++round) {
        const PathNoise noise = round % 5 == 0 ? PathNoise() : PathNoise(static_cast<std::uint64_t>(round));
        std::vector<Proposal> found(random() % (kMaxCandidates + 1));
        // Some of equal probability, for ties without noise.
        for (std::size_t i = 0; i < found.size(); ++i)
            found[i] = {.token = static_cast<TokenId>(7 * ((i * 37) % 1031)),
                        .probability = random() % 3 == 0 ? 0.25F : uniform(random),
                        .bin = 0};
        std::vector<Proposal> expected = found;
        std::ranges::sort(expected, [&](const Proposal& a, const Proposal& b) {
            const auto rank = [&](const Proposal& of) {
                return noise.present() ? noise.rank(of.probability, round, of.token) : of.probability;
            };
            const float rank_a = rank(a);
            const float rank_b = rank(b);
            return rank_a != rank_b ? rank_a > rank_b : a.token < b.token;
        });
        std::vector<Proposal> out(random() % 12);
        const std::size_t n = take_best(found, round, noise, out);
        ASSERT_EQ(n, std::min(found.size(), out.size()));
        for (std::size_t i = 0; i < n; ++i)
            ASSERT_EQ(out[i].token, expected[i].token) << "round " << round << ", " << i;
    }
}

TEST(BestProposals, ARowKeepsItsOrderWithoutNoise) {
    const std::vector<Proposal> row = {{5, 0.25F, 0}, {3, 0.25F, 0}, {9, 0.1F, 0}};
    std::vector<Proposal> out(2);
    ASSERT_EQ(take_best_of_row(row, 4, PathNoise(), out), 2U);
    EXPECT_EQ(out[0].token, 5);
    EXPECT_EQ(out[1].token, 3);
    const PathNoise noise(11);
    std::vector<Proposal> expected(3);
    ASSERT_EQ(take_best(row, 4, noise, expected), 3U);
    out.resize(3);
    ASSERT_EQ(take_best_of_row(row, 4, noise, out), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i].token, expected[i].token);
}

}  // namespace
}  // namespace slipstream::draft
