// Replay of recorded answers: what is counted, what a proposer hears, and that it never sees what is still to come.
#include "draft/replay.h"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/papers/prompt_lookup.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Does what it is told, and keeps what it hears.
class ToldProposer final : public Proposer {
public:
    using Proposer = std::function<void(TokenTree&, const ProposalLimits&)>;
    explicit ToldProposer(Proposer proposer) : proposer_(std::move(proposer)) {}

    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        EXPECT_EQ(std::vector(limits.text.begin(), limits.text.end()), heard);
        EXPECT_EQ(tree.token(kTreeRoot), heard.back());
        proposer_(tree, limits);
    }
    void observe(const Observation& observation) override {
        n_new.push_back(observation.n_new);
        const std::vector<TokenId> text(observation.text.begin(), observation.text.end());
        if (observation.n_new > 0) {
            // The text before with n_new tokens behind it.
            ASSERT_EQ(text.size(), heard.size() + static_cast<std::size_t>(observation.n_new));
            EXPECT_TRUE(std::equal(heard.begin(), heard.end(), text.begin()));
        }
        if (observation.tree != nullptr) {
            EXPECT_TRUE(observation.logits.empty());
            ASSERT_EQ(observation.accepted.size(), static_cast<std::size_t>(observation.n_new));
            EXPECT_EQ(observation.accepted.front(), kTreeRoot);
            for (std::size_t i = 1; i < observation.accepted.size(); ++i) {
                EXPECT_EQ(observation.tree->parent(observation.accepted[i]), observation.accepted[i - 1]);
                EXPECT_EQ(observation.tree->token(observation.accepted[i]), text[heard.size() + i - 1]);
            }
        }
        heard = text;
    }

    std::vector<TokenId> heard;
    std::vector<std::int64_t> n_new;

private:
    Proposer proposer_;
};

void chain(TokenTree& tree, const std::vector<TokenId>& tokens) {
    TreeNode at = kTreeRoot;
    for (const TokenId token : tokens) at = tree.add(at, token);
}

TEST(Replay, CountsWhatPlainDecodingCommits) {
    ToldProposer nothing([](TokenTree&, const ProposalLimits&) {});
    const std::vector<RecordedTurn> turns{{{1, 5, 6}, {7, 8, 2}}, {{9}, {10, 2}}};
    const ReplayFigures figures = replay(nothing, turns, 4);
    EXPECT_EQ(figures.passes, 5);
    EXPECT_EQ(figures.tokens, 5);
    EXPECT_EQ(figures.nodes, 5);
    EXPECT_EQ(figures.mean_accepted_tokens(), 1.0);
    EXPECT_THAT(figures.accept_lengths, ElementsAre(1, 1, 1, 1, 1));
    // A cut to nothing, the first prompt, its answer, the second prompt, its answer.
    EXPECT_THAT(nothing.n_new, ElementsAre(0, 3, 1, 1, 1, 1, 1, 1));
    EXPECT_THAT(nothing.heard, ElementsAre(1, 5, 6, 7, 8, 2, 9, 10, 2));
}

TEST(Replay, FollowsTheAnswerThroughTheTree) {
    // 7 8 is right and 9 behind it is not; beside it stands a branch that is.
    ToldProposer proposer([](TokenTree& tree, const ProposalLimits&) {
        if (tree.token(kTreeRoot) != 6) return;
        chain(tree, {7, 9});
        chain(tree, {7, 8, 3, 5});
        chain(tree, {4, 4});
    });
    const std::vector<RecordedTurn> turns{{{1, 6}, {7, 8, 3, 4, 2}}};
    const ReplayFigures figures = replay(proposer, turns, 16);
    EXPECT_THAT(figures.accept_lengths, ElementsAre(4, 1));
    EXPECT_EQ(figures.nodes, 8 + 1);
}

TEST(Replay, TheFirstPassOfATurnCarriesGuessesAndTheEndTokenIsTheLast) {
    // Guesses run past the end of the answer: nothing counts behind it, but the end token itself does.
    ToldProposer proposer([](TokenTree& tree, const ProposalLimits&) { chain(tree, {7, 2, 8, 8}); });
    const std::vector<RecordedTurn> turns{{{1}, {7, 2}}, {{5}, {7, 2}}};
    const ReplayFigures figures = replay(proposer, turns, 8);
    EXPECT_THAT(figures.accept_lengths, ElementsAre(2, 2));
    EXPECT_THAT(proposer.heard, ElementsAre(1, 7, 2, 5, 7, 2));
}

TEST(Replay, SaysNothingOfTheAnswerAhead) {
    std::vector<std::pair<std::int64_t, std::int64_t>> limits_seen;
    ToldProposer proposer(
        [&](TokenTree&, const ProposalLimits& limits) { limits_seen.emplace_back(limits.budget, limits.max_depth); });
    const std::vector<RecordedTurn> turns{{{1}, {7, 8, 2}}};
    EXPECT_EQ(replay(proposer, turns, 5).passes, 3);
    EXPECT_THAT(limits_seen, ElementsAre(std::pair(5, 4), std::pair(5, 4), std::pair(5, 4)));
}

TEST(Replay, AnEmptyAnswerIsNoPass) {
    ToldProposer proposer([](TokenTree&, const ProposalLimits&) { ADD_FAILURE() << "nothing to guess"; });
    const std::vector<RecordedTurn> turns{{{1, 2}, {}}};
    const ReplayFigures figures = replay(proposer, turns, 8);
    EXPECT_EQ(figures.passes, 0);
    EXPECT_EQ(figures.mean_accepted_tokens(), 0.0);
    EXPECT_THAT(figures.accept_lengths, IsEmpty());
}

TEST(Replay, FiguresAddUp) {
    ReplayFigures sum;
    ToldProposer proposer([](TokenTree& tree, const ProposalLimits&) { chain(tree, {7}); });
    for (int i = 0; i < 2; ++i) sum += replay(proposer, std::vector<RecordedTurn>{{{1}, {7, 3, 7}}}, 2);
    EXPECT_EQ(sum.tokens, 6);
    EXPECT_EQ(sum.passes, 4);
    EXPECT_EQ(sum.mean_accepted_tokens(), 1.5);
    EXPECT_THAT(sum.accept_lengths, ElementsAre(2, 1, 2, 1));
}

// A real source against its rule, looked for place by place.
class LookupProposer final : public Proposer {
public:
    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        const PathNoise none;
        source_.propose_shape(
            tree, {.text = limits.text, .budget = limits.budget, .max_depth = limits.max_depth, .noise = &none});
    }
    void observe(const Observation& observation) override { source_.observe(observation); }

private:
    PromptLookup source_;
};

std::vector<TokenId> look_up(const std::vector<TokenId>& text) {
    const auto length = static_cast<std::ptrdiff_t>(text.size());
    for (std::ptrdiff_t n = std::min<std::ptrdiff_t>(3, length); n > 0; --n)
        for (std::ptrdiff_t at = 0; at + n < length - n; ++at)
            if (at + n + 10 <= length && std::equal(text.end() - n, text.end(), text.begin() + at))
                return {text.begin() + at + n, text.begin() + at + n + 10};
    return {};
}

TEST(Replay, PromptLookupAsItsRuleSays) {
    std::mt19937 random(7);
    LookupProposer proposer;  // keeps its tables: every conversation starts with a cut
    for (int round = 0; round < 30; ++round) {
        std::vector<RecordedTurn> turns(2);
        for (RecordedTurn& turn : turns) {
            const auto draw = [&](std::size_t n) {
                std::vector<TokenId> tokens;
                for (std::size_t i = 0; i < n; ++i)
                    tokens.push_back(tokens.size() > 12 && random() % 4 != 0 ? tokens[tokens.size() - 12]
                                                                             : static_cast<TokenId>(random() % 6));
                return tokens;
            };
            turn = {draw(20), draw(60)};
        }
        std::vector<std::int64_t> expected;
        std::vector<TokenId> text;
        for (const RecordedTurn& turn : turns) {
            text.insert(text.end(), turn.prompt.begin(), turn.prompt.end());
            for (std::size_t at = 0; at < turn.answer.size();) {
                const std::vector<TokenId> guess = look_up(text);
                std::size_t right = 0;
                while (right < guess.size() && at + right + 1 < turn.answer.size() &&
                       guess[right] == turn.answer[at + right])
                    ++right;
                expected.push_back(static_cast<std::int64_t>(right) + 1);
                for (std::size_t i = 0; i <= right; ++i) text.push_back(turn.answer[at + i]);
                at += right + 1;
            }
        }
        EXPECT_EQ(replay(proposer, turns, 64).accept_lengths, expected) << "round " << round;
    }
}

}  // namespace
}  // namespace slipstream::draft
