// Prompt lookup against its rule as a plain loop over the text, while the text grows, is cut and replaced.
#include "draft/papers/prompt_lookup.h"

#include <algorithm>
#include <array>
#include <optional>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/draft/changing_text.h"
#include "tests/support/error_text.h"

namespace slipstream::draft {
namespace {

using Tokens = std::vector<TokenId>;

struct Found {
    std::size_t start;
    std::size_t n;
};

// The rule word by word: longest n first, earliest place first, a full 10 tokens, started before L - n.
std::optional<Found> look_up(const Tokens& text, std::size_t max_ngram) {
    const std::size_t length = text.size();
    for (std::size_t n = std::min(max_ngram, length); n >= 1; --n)
        for (std::size_t place = 0; place + n <= length; ++place) {
            const std::size_t start = place + n;
            if (!std::equal(text.end() - static_cast<std::ptrdiff_t>(n), text.end(),
                            text.begin() + static_cast<std::ptrdiff_t>(place)))
                continue;
            if (start + 10 <= length && start < length - n) return Found{start, n};
        }
    return std::nullopt;
}

Tokens chain_of(PromptLookup& source, const Tokens& text, std::int64_t budget, std::int64_t max_depth) {
    TokenTree tree;
    tree.reset(text.back());
    const ShapeRequest request{.text = text, .budget = budget, .max_depth = max_depth};
    source.propose_shape(tree, request);
    expect_within(tree, request);
    for (const TreeNode node : tree.draft_nodes()) EXPECT_EQ(tree.parent(node), TreeNode(node.index - 1));
    return {tree.tokens().begin() + 1, tree.tokens().end()};
}

TEST(PromptLookup, FollowsTheRuleOnChangingTexts) {
    std::size_t n_found = 0;
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(seed);
        const std::int64_t max_ngram = 1 + seed % 5;
        PromptLookup source({.max_ngram = max_ngram});
        ChangingText changing(seed, static_cast<TokenId>(2 + seed % 9));
        for (int step = 0; step < 100; ++step) {
            changing.change(source);
            const Tokens& text = changing.text();
            const auto expected = look_up(text, static_cast<std::size_t>(max_ngram));
            const Tokens chain = chain_of(source, text, 64, 64);
            ASSERT_EQ(chain.size(), expected ? 10U : 0U);
            ASSERT_EQ(source.root(text) == kNowhere, !expected);
            if (!expected) continue;
            ++n_found;
            EXPECT_TRUE(
                std::equal(chain.begin(), chain.end(), text.begin() + static_cast<std::ptrdiff_t>(expected->start)));
            EXPECT_EQ(chain_of(source, text, 5, 64).size(), 4U);
            EXPECT_EQ(chain_of(source, text, 64, 3).size(), 3U);
            EXPECT_TRUE(chain_of(source, text, 1, 64).empty());
        }
    }
    EXPECT_GT(n_found, 500U);
}

TEST(PromptLookup, CursorsWalkTheChainAndNothingElse) {
    PromptLookup source;
    const PathNoise noise(7);
    for (std::uint32_t seed = 0; seed < 30; ++seed) {
        ChangingText changing(seed, 4);
        source.reset();
        for (int step = 0; step < 30; ++step) {
            changing.change(source);
            const Tokens& text = changing.text();
            const auto expected = look_up(text, 3);
            Cursor cursor = source.root(text);
            if (!expected) continue;
            for (std::size_t depth = 0; depth < 10; ++depth) {
                ASSERT_NE(cursor, kNowhere);
                std::array<Proposal, 4> out;
                const auto position = static_cast<std::int64_t>(text.size() + depth);
                ASSERT_EQ(source.propose(cursor, position, noise, out), 1U);
                expect_valid({out.data(), 1}, source, position, noise);
                EXPECT_EQ(out[0].token, text[expected->start + depth]);
                EXPECT_EQ(out[0].bin / 4, expected->n - 1);
                EXPECT_EQ(source.advance(cursor, out[0].token + 1), kNowhere);
                EXPECT_EQ(source.propose(cursor, position, noise, {}), 0U);
                cursor = source.advance(cursor, out[0].token);
            }
            EXPECT_EQ(cursor, kNowhere);
        }
    }
}

TEST(PromptLookup, PassesOverAPlaceWithoutTenTokensBehindIt) {
    PromptLookup source;
    // "1 2 3" stood before with 9 tokens behind it; "3" alone stands further in front.
    const Tokens text = {3, 4, 5, 6, 7, 1, 2, 3, 8, 9, 10, 11, 12, 13, 1, 2, 3};
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
    EXPECT_EQ(chain_of(source, text, 64, 64), (Tokens{4, 5, 6, 7, 1, 2, 3, 8, 9, 10}));
}

TEST(PromptLookup, StartsBeforeTheNgramItself) {
    // 24 tokens, 12 of them twice: behind the first 12 there are more than 10, but no start before L - 12. 11 will do.
    PromptLookup source({.max_ngram = 12});
    Tokens text;
    for (TokenId i = 0; i < 24; ++i) text.push_back(i % 12);
    source.observe({.text = text, .n_new = 24});
    std::array<Proposal, 1> out;
    ASSERT_EQ(source.propose(source.root(text), 24, PathNoise(), out), 1U);
    EXPECT_EQ(out[0].token, 0);
    EXPECT_EQ(out[0].bin / 4, 11 - 1);
}

TEST(PromptLookup, FindsTheEarliestPlaceOfALongText) {
    PromptLookup source({.max_ngram = 2});
    Tokens text;
    for (TokenId token = 0; token < 20000; ++token) text.push_back(token);
    for (const TokenId token : {7000, 7001}) text.push_back(token);
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
    EXPECT_EQ(chain_of(source, text, 3, 9), (Tokens{7002, 7003}));
}

TEST(PromptLookup, RefusesNgramsOutOfRange) {
    for (const std::int64_t n : {-1, 0, 65})
        EXPECT_NE(error_text<RequestError>([n] { PromptLookup({.max_ngram = n}); }).find(std::to_string(n)),
                  std::string::npos);
}

}  // namespace
}  // namespace slipstream::draft
