// What several sources say of one node, put together: who named what, merged probabilities, and what noise makes of
// them.
#include "draft/tree/votes.h"

#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/models/self_draft_model.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;

// Nodes of the search, voted tokens and nodes of the grown tree do not mix.
static_assert(!std::is_convertible_v<SearchNode, VotedIndex> && !std::is_convertible_v<VotedIndex, SearchNode>);
static_assert(!std::is_constructible_v<TreeNode, SearchNode> && !std::is_constructible_v<SearchNode, TreeNode>);
static_assert(!std::is_convertible_v<SearchNode, std::int32_t> && !std::is_convertible_v<std::int32_t, SearchNode>);

// Two tables, a cheap model and a dear one, of three bins each.
constexpr std::array<std::uint16_t, 4> kBins = {3, 3, 3, 3};
constexpr std::array<float, 2> kRankErrors = {kModelRankError, kModelRankError};
constexpr std::int64_t kVocab = 50;
constexpr std::int64_t kPosition = 7;

Votes::Range count(Votes& votes, std::int32_t model = -1, const PathNoise& noise = {}, const Votes::Range& known = {}) {
    return votes.count(known, model, kPosition, noise);
}

const VotedToken& find(Votes& votes, const Votes::Range& range, TokenId token) {
    return *std::ranges::find(votes.of(range), token, &VotedToken::token);
}

std::vector<std::uint16_t> voters(Votes& votes, const VotedToken& token) {
    std::vector<std::uint16_t> sources;
    for (const Calibration::Input& vote : votes.votes_for(token))
        if (!votes.is_against(vote)) sources.push_back(vote.source);
    return sources;
}

TEST(Votes, ATokenHasAVoteOfEachSourceThatNamesIt) {
    Votes votes(kBins, kRankErrors, kVocab);
    votes.begin(false);
    votes.open();
    votes.add(0, std::vector<Proposal>{{4, 0.5F, 0}, {9, 0.2F, 2}});
    votes.add(1, std::vector<Proposal>{{9, 0.4F, 1}, {20, 0.1F, 0}});
    const Votes::Range children = count(votes);
    ASSERT_EQ(children.n, 3);
    EXPECT_EQ(children.model, -1);
    EXPECT_THAT(voters(votes, find(votes, children, 4)), ElementsAre(0));
    EXPECT_THAT(voters(votes, find(votes, children, 9)), ElementsAre(0, 1));
    EXPECT_THAT(voters(votes, find(votes, children, 20)), ElementsAre(1));
    const auto both = votes.votes_for(find(votes, children, 9));
    EXPECT_EQ(both[0].bin, 2);
    EXPECT_EQ(both[1].probability, 0.4F);
    // Alone a source is taken at its word; two that agree make it likelier than either says.
    EXPECT_NEAR(find(votes, children, 4).estimate, 0.5F, 0.02F);
    EXPECT_GT(find(votes, children, 9).merged, 0.4F);
    EXPECT_FALSE(find(votes, children, 9).by_model);
    // Another node knows nothing of them.
    votes.open();
    votes.add(0, std::vector<Proposal>{{9, 0.3F, 0}});
    const Votes::Range others = count(votes);
    EXPECT_EQ(others.n, 1);
    EXPECT_THAT(voters(votes, find(votes, others, 9)), ElementsAre(0));
    EXPECT_THAT(voters(votes, find(votes, children, 9)), ElementsAre(0, 1));
}

TEST(Votes, AModelVotesAgainstWhatItDoesNotName) {
    Votes votes(kBins, kRankErrors, kVocab);
    votes.begin(false);
    votes.open();
    votes.add(0, std::vector<Proposal>{{4, 0.5F, 0}, {9, 0.3F, 0}});
    votes.add(2, std::vector<Proposal>{{9, 0.4F, 0}, {11, 0.3F, 1}});
    votes.add(3, std::vector<Proposal>{{11, 0.6F, 2}, {12, 0.1F, 0}});
    const Votes::Range children = count(votes, 1);
    EXPECT_EQ(children.model, 1);
    ASSERT_EQ(children.n, 4);
    EXPECT_THAT(voters(votes, find(votes, children, 4)), ElementsAre(0));
    EXPECT_EQ(votes.votes_for(find(votes, children, 4)).size(), 3U) << "two are against it";
    EXPECT_THAT(voters(votes, find(votes, children, 9)), ElementsAre(0, 2));
    EXPECT_THAT(voters(votes, find(votes, children, 11)), ElementsAre(2, 3));
    EXPECT_EQ(votes.votes_for(find(votes, children, 12)).size(), 1U) << "the cheap one spoke before it was named";
    for (const TokenId named : {11, 12}) EXPECT_TRUE(find(votes, children, named).by_model);
    for (const TokenId other : {4, 9}) EXPECT_FALSE(find(votes, children, other).by_model);
    Votes tables(kBins, kRankErrors, kVocab);
    tables.begin(false);
    tables.open();
    tables.add(0, std::vector<Proposal>{{4, 0.5F, 0}, {9, 0.3F, 0}});
    const Votes::Range alone = count(tables);
    EXPECT_LT(find(votes, children, 4).estimate, 0.5F * find(tables, alone, 4).estimate);
}

TEST(Votes, WhatWasSearchedBeforeKeepsItsNodes) {
    Votes votes(kBins, kRankErrors, kVocab);
    votes.begin(false);
    votes.open();
    votes.add(0, std::vector<Proposal>{{4, 0.5F, 0}, {9, 0.2F, 0}});
    const Votes::Range before = count(votes);
    for (VotedToken& token : votes.of(before)) token.node = SearchNode{token.token + 100};
    votes.open();
    votes.add(0, std::vector<Proposal>{{9, 0.2F, 0}, {4, 0.5F, 0}});
    votes.add(2, std::vector<Proposal>{{30, 0.6F, 0}});
    const Votes::Range after = count(votes, 0, {}, before);
    EXPECT_EQ(find(votes, after, 4).node, SearchNode{104});
    EXPECT_EQ(find(votes, after, 9).node, SearchNode{109});
    EXPECT_EQ(find(votes, after, 30).node, SearchNode::None);
}

TEST(Votes, EstimatesAreAtMostCertain) {
    Votes votes(kBins, kRankErrors, kVocab);
    for (const bool noisy : {false, true}) {
        const PathNoise noise = noisy ? PathNoise(3) : PathNoise();
        votes.begin(noisy);
        for (int round = 0; round < 20; ++round) {
            votes.open();
            std::vector<Proposal> proposals;
            for (TokenId token = 0; token < 8; ++token)
                proposals.push_back({(token * 7 + round) % 50, token == 0 ? 0.97F : 0.3F, 0});
            votes.add(0, proposals);
            votes.add(1, proposals);
            votes.add(3, proposals);
            const Votes::Range children = votes.count({}, round % 2 == 0 ? 1 : -1, kPosition + round, noise);
            float sum = 0.0F;
            for (const VotedToken& token : votes.of(children)) {
                EXPECT_GE(token.chance, 0.0F);
                EXPECT_LE(token.estimate, 0.98F);
                sum += token.chance;
            }
            EXPECT_LE(sum, 0.9901F);
        }
    }
}

// Under noise a model's candidates compete by log p + gumbel, and nobody else's count beside them.
TEST(Votes, UnderNoiseTheDearestModelDecides) {
    int n_best = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const PathNoise noise(seed);
        Votes votes(kBins, kRankErrors, kVocab);
        votes.begin(true);
        EXPECT_TRUE(votes.noisy());
        votes.open();
        votes.add(0, std::vector<Proposal>{{4, 0.6F, 0}});
        votes.add(3, std::vector<Proposal>{{1, 0.4F, 0}, {2, 0.3F, 0}, {3, 0.2F, 0}});
        const Votes::Range children = count(votes, 1, noise);
        EXPECT_EQ(find(votes, children, 4).chance, 0.0F);
        TokenId best = 1;
        for (const TokenId token : {2, 3})
            if (noise.rank(find(votes, children, token).merged, kPosition, token) >
                noise.rank(find(votes, children, best).merged, kPosition, best))
                best = token;
        for (const TokenId token : {1, 2, 3})
            EXPECT_LE(find(votes, children, token).chance, find(votes, children, best).chance);
        n_best += best == 1 ? 1 : 0;
    }
    EXPECT_GT(n_best, 10);
    EXPECT_LT(n_best, 40);
}

// The smaller a model's errors are, the more certain is its best candidate, which stays the same.
TEST(Votes, UnderNoiseAModelOfSmallerErrorsIsMoreCertain) {
    constexpr std::array<float, 2> kExact = {kModelRankError, kViewRankError};
    constexpr std::array<float, 2> kCheapIsExact = {kViewRankError, kModelRankError};
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const PathNoise noise(seed);
        const auto chances = [&](std::span<const float> rank_errors) {
            Votes votes(kBins, rank_errors, kVocab);
            votes.begin(true);
            votes.open();
            votes.add(3, std::vector<Proposal>{{1, 0.5F, 0}, {2, 0.45F, 0}});
            const Votes::Range children = count(votes, 1, noise);
            return std::array{find(votes, children, 1).chance, find(votes, children, 2).chance};
        };
        const auto coarse = chances(kRankErrors);
        const auto exact = chances(kExact);
        EXPECT_EQ(coarse[0] > coarse[1], exact[0] > exact[1]) << seed;
        EXPECT_GE(std::ranges::max(exact), std::ranges::max(coarse)) << seed;  // equal at the upper bound
        EXPECT_LT(std::ranges::min(exact), std::ranges::min(coarse)) << seed;
        EXPECT_EQ(chances(kCheapIsExact), coarse) << "errors of another model";
    }
}

TEST(Votes, WhatCameTeachesWhoseWordIsWorthWhat) {
    Votes votes(kBins, kRankErrors, kVocab);
    const auto vote = [&] {
        votes.begin(false);
        votes.open();
        votes.add(0, std::vector<Proposal>{{4, 0.4F, 0}});
        votes.add(1, std::vector<Proposal>{{9, 0.4F, 0}});
        return count(votes);
    };
    const Votes::Range first = vote();
    EXPECT_NEAR(find(votes, first, 4).estimate, find(votes, first, 9).estimate, 1e-5F);
    for (int i = 0; i < 100; ++i) votes.learn(vote(), 9, nullptr);
    const Votes::Range later = vote();
    EXPECT_GT(find(votes, later, 9).estimate, 0.9F);
    EXPECT_LT(find(votes, later, 4).estimate, 0.05F);
}

TEST(Votes, UnderNoiseTheTargetsOwnWordTeaches) {
    const std::vector<float> logits = [] {
        std::vector<float> row(kVocab, 0.0F);
        row[4] = 10.0F;
        return row;
    }();
    const TargetProbabilities target(LogitRows(matrix_view(logits.data(), 1, kVocab)), 0, 1.0);
    Votes votes(kBins, kRankErrors, kVocab);
    const PathNoise noise(5);
    const auto vote = [&] {
        votes.begin(true);
        votes.open();
        votes.add(0, std::vector<Proposal>{{4, 0.3F, 0}});
        return count(votes, -1, noise);
    };
    const float before = find(votes, vote(), 4).merged;
    // What came says nothing of the table's word while the target's is known.
    for (int i = 0; i < 100; ++i) votes.learn(vote(), 30, &target);
    EXPECT_GT(find(votes, vote(), 4).merged, 2.0F * before);
}

}  // namespace
}  // namespace slipstream::draft
