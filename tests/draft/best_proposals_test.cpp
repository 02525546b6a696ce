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
            found[i] = {.token = static_cast<TokenId>(7 * ((i * 37) % 101)),
                        .probability = random() % 3 == 0 ? 0.25F : uniform(random),
                        .cell = 0};
        std::vector<Proposal> expected = found;
        std::ranges::sort(expected, [&](const Proposal& a, const Proposal& b) {
            const float rank_a = noise.rank(a.probability, round, a.token);
            const float rank_b = noise.rank(b.probability, round, b.token);
            return rank_a != rank_b ? rank_a > rank_b : a.token < b.token;
        });
        std::vector<Proposal> out(random() % 12);
        const std::size_t n = take_best(found, round, noise, out);
        ASSERT_EQ(n, std::min(found.size(), out.size()));
        for (std::size_t i = 0; i < n; ++i)
            ASSERT_EQ(out[i].token, expected[i].token) << "round " << round << ", " << i;
    }
}

}  // namespace
}  // namespace slipstream::draft
