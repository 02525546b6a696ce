// Proposers on heads of rows: what they know from whole rows, as far as heads go.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "draft/logit_row.h"
#include "draft/models/guess_list.h"
#include "draft/sources/recycling.h"
#include "draft/tree/target_softmax.h"
#include "kernels/sampling.h"
#include "tests/support/remote_rows.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kVocab = 3000;
constexpr std::int64_t kRows = 6;

std::vector<float> random_logits(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    std::vector<float> logits(kRows * kVocab);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

const std::vector<std::int64_t> kPositions(kRows, 5);

TEST(LogitHeads, TheBestAreTheRows) {
    RemoteRows rows(kRows, kVocab, random_logits(1));
    RowTop of_heads(16, kVocab);
    RowTop of_rows(16, kVocab);
    const LogitRows heads = rows.with_top({.n_best = 8, .sum_temperature = 0.8}, kPositions);
    for (const std::int64_t k : {1, 8, 9})
        for (std::int64_t row = 0; row < kRows; ++row) {
            const auto expected = of_rows.best(rows.row(row), k);
            const auto found = of_heads.best(heads, row, k);
            ASSERT_EQ(found.size(), expected.size());
            for (std::size_t i = 0; i < found.size(); ++i) {
                EXPECT_EQ(found[i].token, expected[i].token);
                EXPECT_EQ(found[i].logit, expected[i].logit);
            }
            EXPECT_EQ(rows.n_fetched(), k == 9 ? row + 1 : 0);  // more than the head holds
        }
}

TEST(LogitHeads, RecyclingLearnsTheSame) {
    for (const double temperature : {0.0, 0.8}) {
        RemoteRows rows(kRows, kVocab, random_logits(2));
        Recycling of_heads({.vocab = kVocab, .temperature = temperature});
        Recycling of_rows({.vocab = kVocab, .temperature = temperature});
        TokenTree tree;
        tree.reset(0);
        for (std::int32_t i = 1; i < kRows; ++i) tree.add(TreeNode(i - 1), i);
        const std::vector<TokenId> text = {7, 0, 1};
        const TreeNode accepted[] = {kTreeRoot};
        Observation seen{.text = text, .n_new = 1, .tree = &tree, .accepted = accepted};
        seen.logits = rows.with_top(of_heads.logit_request(), kPositions);
        of_heads.observe(seen);
        EXPECT_EQ(rows.n_fetched(), 0);
        seen.logits = matrix_view(rows.row(0).data(), kRows, kVocab);
        of_rows.observe(seen);
        for (TokenId token = 0; token < kRows; ++token) {
            std::vector<Proposal> found(8);
            std::vector<Proposal> expected(8);
            ASSERT_EQ(of_heads.propose(static_cast<Cursor>(token), 3, {}, found), 8U);
            ASSERT_EQ(of_rows.propose(static_cast<Cursor>(token), 3, {}, expected), 8U);
            // Both keep halves; a row by itself is weighed by an estimate, a head by the device's sum.
            const std::span<const float> row = rows.row(token);
            const auto scale = static_cast<float>(temperature > 0.0 ? temperature : 1.0);
            const float greatest = row[expected[0].token];
            const float normaliser = log_normaliser(row, greatest, scale);
            for (std::size_t i = 0; i < 8; ++i) {
                EXPECT_EQ(found[i].token, expected[i].token);
                const float logit = row[found[i].token];
                const float exact = std::exp((logit - greatest) / scale - normaliser);
                EXPECT_NEAR(found[i].probability, exact, 2e-3F * exact);
            }
        }
    }
}

TEST(LogitHeads, GuessListsAreTheRows) {
    const SamplerOptions settings[] = {{.temperature = 0.0},
                                       {.temperature = 0.8, .top_k = 40, .top_p = 0.95},
                                       {.temperature = 1.3, .top_k = 64, .top_p = 1.0, .min_p = 0.02},
                                       {.temperature = 0.7, .top_k = 10, .top_p = 0.9, .repeat_penalty = 1.3}};
    for (const SamplerOptions& options : settings) {
        RemoteRows rows(kRows, kVocab, random_logits(3));
        GuessList of_heads(options, 1.0F);
        GuessList of_rows(options, 1.0F);
        RowTop top(of_heads.n_listed(), kVocab);
        ASSERT_LE(of_heads.n_listed(), kMostTopLogits);
        const LogitRows heads = rows.with_top({.n_best = of_heads.n_listed()}, kPositions);
        for (std::int64_t row = 0; row < kRows; ++row) {
            const TopLogits head = heads.top(row);
            const std::vector<TokenId> path = {head.ids[1], head.ids[5], 17, head.ids[1]};
            of_heads.fill(top.best(heads, row, of_heads.n_listed()), path);
            EXPECT_EQ(rows.n_fetched(), 0);
            of_rows.fill(top.best(rows.row(row), of_rows.n_listed()), path);
            ASSERT_EQ(of_heads.n_surviving(), of_rows.n_surviving());
            ASSERT_EQ(of_heads.guesses().size(), of_rows.guesses().size());
            for (std::size_t i = 0; i < of_rows.guesses().size(); ++i) {
                EXPECT_EQ(of_heads.guesses()[i].token, of_rows.guesses()[i].token);
                EXPECT_EQ(of_heads.guesses()[i].logit, of_rows.guesses()[i].logit);
            }
        }
    }
}

// Ids that only one of two models knows are no guesses.
TEST(LogitHeads, NarrowerVocabulariesLeaveIdsOut) {
    std::vector<float> logits = random_logits(4);
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (i % kVocab >= 2900) logits[i] = 50.0F;
    RemoteRows rows(kRows, kVocab, std::move(logits));
    const LogitRows heads = rows.with_top({.n_best = kMostTopLogits, .n_ids = 2900}, kPositions);
    RowTop top(1, 2900);
    for (std::int64_t row = 0; row < kRows; ++row) {
        const TopLogits head = heads.top(row);
        EXPECT_EQ(head.ids.size(), static_cast<std::size_t>(kMostTopLogits));
        EXPECT_EQ(head.ids.front(), top.best(rows.row(row).first(2900), 1).front().token);
    }
}

}  // namespace
}  // namespace slipstream::draft
