// The suffix automaton and its source against plain searches of the text for the path's suffixes, while the text grows,
// is cut, replaced and, where memory is bounded, forgotten from the front.
#include "draft/sources/suffix_automaton_source.h"

#include <algorithm>
#include <array>
#include <optional>

#include <gtest/gtest.h>

#include "draft/sources/best_proposals.h"
#include "draft/sources/match_length.h"
#include "tests/draft/changing_text.h"

namespace slipstream::draft {
namespace {

using Tokens = std::vector<TokenId>;

// Position behind the latest place of `wanted` in `text` that a token follows.
std::optional<std::size_t> latest_follower(std::span<const TokenId> text, std::span<const TokenId> wanted) {
    for (std::size_t end = text.size(); end-- > wanted.size();)
        if (std::ranges::equal(text.subspan(end - wanted.size(), wanted.size()), wanted)) return end;
    return std::nullopt;
}

struct Guess {
    TokenId token;
    std::size_t length;
    bool operator==(const Guess&) const = default;
};

// What follows the suffixes of text + path in `text`, longest first, where it differs from what longer ones gave.
std::vector<Guess> guesses(std::span<const TokenId> text, const Tokens& path) {
    Tokens all(text.begin(), text.end());
    all.insert(all.end(), path.begin(), path.end());
    std::vector<Guess> out;
    for (std::size_t length = all.size(); length >= 1; --length) {
        const auto follower = latest_follower(text, std::span(all).last(length));
        if (!follower) continue;
        const TokenId token = text[*follower];
        if (std::ranges::find(out, token, &Guess::token) == out.end()) out.push_back({token, length});
    }
    return out;
}

void expect_guesses(SuffixSource& source, Cursor cursor, std::int64_t position, const std::vector<Guess>& expected) {
    ASSERT_EQ(cursor == kNowhere, expected.empty());
    if (expected.empty()) return;
    std::array<Proposal, kMaxCandidates> out;
    const std::size_t n = source.propose(cursor, position, PathNoise(), out);
    expect_valid({out.data(), n}, source, position, PathNoise());
    ASSERT_EQ(n, expected.size());
    for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(out[i].token, expected[i].token);
        EXPECT_EQ(out[i].bin,
                  match_bucket(static_cast<std::uint32_t>(expected[i].length)) * 3 + std::min<std::size_t>(i, 2));
    }
    // The first of a longer list, in the order of the noise.
    const PathNoise noise(11);
    std::array<Proposal, kMaxCandidates> ranked;
    ASSERT_EQ(source.propose(cursor, position, noise, ranked), n);
    expect_valid({ranked.data(), n}, source, position, noise);
    std::array<Proposal, 1> best;
    ASSERT_EQ(source.propose(cursor, position, noise, best), 1U);
    EXPECT_EQ(best[0].token, ranked[0].token);
    ASSERT_EQ(source.propose(cursor, position, PathNoise(), best), 1U);
    EXPECT_EQ(best[0].token, out[0].token);
    EXPECT_EQ(source.propose(cursor, position, noise, {}), 0U);
}

TEST(SuffixSource, FindsTheLongestMatchOfEveryPath) {
    for (std::uint32_t seed = 0; seed < 30; ++seed) {
        SCOPED_TRACE(seed);
        SuffixSource source;
        ChangingText changing(seed, static_cast<TokenId>(2 + seed % 6));
        for (int step = 0; step < 50; ++step) {
            changing.change(source);
            const Tokens& text = changing.text();
            Tokens path;
            Cursor cursor = source.root(text);
            for (;;) {
                const auto expected = guesses(text, path);
                expect_guesses(source, cursor, static_cast<std::int64_t>(text.size() + path.size()), expected);
                if (cursor == kNowhere || path.size() == 8 || HasFailure()) break;
                // Often along what is guessed, else anywhere.
                path.push_back(changing.below(3) > 0 ? expected[changing.below(expected.size())].token
                                                     : changing.token());
                cursor = source.advance(cursor, path.back());
            }
            if (HasFailure()) return;
        }
    }
}

TEST(SuffixSource, ForgetsTheOlderHalfOfATextThatIsTooLong) {
    SuffixSource source({.max_tokens = 50});
    ChangingText changing(3, 3);
    std::size_t n_longer = 0;
    for (int step = 0; step < 400; ++step) {
        changing.change(source);
        const Tokens& text = changing.text();
        // 25 of 50 tokens are dropped when the 51st comes; a text that is taken up anew meets the same.
        std::size_t n_held = text.size();
        while (n_held > 50) n_held -= 25;
        const auto held = std::span(text).last(n_held);
        expect_guesses(source, source.root(text), static_cast<std::int64_t>(text.size()), guesses(held, {}));
        if (HasFailure()) return;
        n_longer += text.size() > 50 ? 1 : 0;
    }
    EXPECT_GT(n_longer, 50U);
}

TEST(SuffixSource, GrowsItsChainWithTheMatch) {
    SuffixSource source;
    Tokens text;
    for (TokenId token = 0; token < 200; ++token) text.push_back(token);
    const auto chain = [&](std::initializer_list<TokenId> more, std::int64_t budget, std::int64_t max_depth) {
        Tokens all = text;
        all.insert(all.end(), more);
        source.reset();
        source.observe({.text = all, .n_new = static_cast<std::int64_t>(all.size())});
        TokenTree tree;
        tree.reset(all.back());
        const PathNoise noise(5);
        const ShapeRequest request{.text = all, .budget = budget, .max_depth = max_depth, .noise = &noise};
        source.propose_shape(tree, request);
        expect_within(tree, request);
        for (const TreeNode node : tree.draft_nodes()) {
            EXPECT_EQ(tree.parent(node), TreeNode(node.index - 1));
            EXPECT_EQ(tree.token(node), all.back() + node.index);
        }
        return tree.size() - 1;
    };
    EXPECT_EQ(chain({300}, 64, 64), 0);
    EXPECT_EQ(chain({300, 20}, 64, 64), 8);
    EXPECT_EQ(chain({300, 20, 21, 22}, 64, 64), 24);
    EXPECT_EQ(chain({300, 20, 21, 22, 23, 24}, 64, 64), 40);
    EXPECT_EQ(chain({300, 20, 21, 22, 23, 24, 25}, 64, 64), 40);
    EXPECT_EQ(chain({300, 20, 21, 22}, 6, 64), 5);
    EXPECT_EQ(chain({300, 20, 21, 22}, 64, 2), 2);
}

TEST(SuffixSource, RanksItsChainByTheNoise) {
    // Behind 1 stood 2 most recently; behind 5 1 stood 3: whichever the noise favours comes first.
    const Tokens text = {5, 1, 3, 9, 4, 1, 2, 8, 5, 1};
    SuffixSource source;
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
    int n_second = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const PathNoise noise(seed);
        std::array<Proposal, 2> out;
        ASSERT_EQ(source.propose(source.root(text), 10, noise, out), 2U);
        TokenTree tree;
        tree.reset(1);
        source.propose_shape(tree, {.text = text, .budget = 2, .max_depth = 1, .noise = &noise});
        ASSERT_EQ(tree.size(), 2);
        EXPECT_EQ(tree.token(TreeNode(1)), out[0].token);
        n_second += out[0].token == 2 ? 1 : 0;
    }
    EXPECT_GT(n_second, 20);
    EXPECT_LT(n_second, 180);
}

// A text of one token over and over has a suffix link for each of its tokens: walks are cut, matches stay matches.
TEST(SuffixAutomaton, CutsTheWalksOfATextThatRepeatsItself) {
    SuffixAutomaton automaton(1 << 20);
    constexpr std::uint32_t kLength = 100000;
    for (std::uint32_t i = 0; i < kLength; ++i) automaton.append(7);
    SuffixAutomaton::Match match = automaton.longest();
    EXPECT_EQ(match.length, kLength - 1);
    EXPECT_EQ(automaton.follower(match), 7);
    for (int i = 0; i < 100; ++i) {
        match = automaton.extend(match, 7);
        EXPECT_EQ(match.length, kLength - 1);
    }
    EXPECT_EQ(automaton.extend(match, 8).length, 0U);
    automaton.append(8);
    EXPECT_EQ(automaton.longest().length, 0U);
    automaton.append(7);
    EXPECT_EQ(automaton.longest().length, 1U);
    EXPECT_EQ(automaton.n_states(), kLength + 3U);
}

TEST(SuffixAutomaton, KeepsWithinItsBytesAToken) {
    ChangingText random(1, 20);
    SuffixAutomaton automaton(1 << 15);
    for (int i = 0; i < 100000; ++i) automaton.append(static_cast<TokenId>(random.below(1 + random.below(20))));
    EXPECT_LE(automaton.text().size(), std::size_t{1} << 15);
    EXPECT_EQ(automaton.n_dropped() + automaton.text().size(), 100000U);
    EXPECT_LE(automaton.n_states(), 2 * automaton.text().size());
    // Vectors that double hold up to twice what is used.
    EXPECT_LE(automaton.memory_bytes(), (std::size_t{1} << 15) * (2 * 48 + 2 * 4 + 4 * 32));
}

}  // namespace
}  // namespace slipstream::draft
