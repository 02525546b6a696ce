// Lookahead decoding against a plain reference that runs the Jacobi window on the target itself, not on a tree.
#include "draft/papers/lookahead.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/loop/verify.h"
#include "tests/draft/changing_text.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using Text = std::vector<TokenId>;

constexpr TokenId kVocab = 23;

/// A target that looks at the last two tokens.
TokenId target_next(std::span<const TokenId> path) {
    const TokenId last = path.back();
    const TokenId before = path.size() > 1 ? path[path.size() - 2] : 0;
    return (5 * last + 3 * (before % 3) + 1) % kVocab;
}

Text path_of(const Text& text, const TokenTree& tree, TreeNode node) {
    Text below;
    for (; node != kTreeRoot; node = tree.parent(node)) below.insert(below.begin(), tree.token(node));
    Text path = text;
    path.insert(path.end(), below.begin(), below.end());
    return path;
}

/// A row of logits a node, the target's next token best.
std::vector<float> logits_of(const Text& text, const TokenTree& tree) {
    std::vector<float> logits(static_cast<std::size_t>(tree.size()) * kVocab, 0.0F);
    for (const TreeNode node : tree.nodes())
        logits[static_cast<std::size_t>(node.index) * kVocab +
               static_cast<std::size_t>(target_next(path_of(text, tree, node)))] = 1.0F;
    return logits;
}

/// One pass: the target over the tree, the walk, and what the source learns. Returns the tokens committed.
std::int64_t pass(Lookahead& source, Text& text, const TokenTree& tree) {
    const std::vector<float> logits = logits_of(text, tree);
    const ConstTensorView view = matrix_view(logits.data(), tree.size(), kVocab);
    Sampler greedy({.temperature = 0.0}, kVocab);
    std::vector<TreeNode> accepted;
    verify_tree(tree, view, greedy, {.max_new_tokens = 100}, text, accepted);
    source.observe({.text = text, .n_new = std::ssize(accepted), .tree = &tree, .logits = view, .accepted = accepted});
    return std::ssize(accepted);
}

/// Window and pool as the paper tells them, on lists.
struct PlainLookahead {
    std::size_t n, g;
    std::vector<Text> columns{};
    std::map<TokenId, std::deque<Text>> pool{};

    void pass(const Text& text) {
        Text trunk = text;
        std::vector<Text> next = columns;
        for (std::size_t c = 0; c < columns.size(); ++c) {
            trunk.push_back(columns[c].front());
            Text path = trunk;
            path.insert(path.end(), columns[c].begin() + 1, columns[c].end());
            next[c].push_back(target_next(path));
            if (next[c].size() < n) continue;
            std::deque<Text>& kept = pool[next[c].front()];
            const Text behind(next[c].begin() + 1, next[c].end());
            std::erase(kept, behind);
            kept.push_front(behind);
            if (kept.size() > g) kept.pop_back();
            next[c].erase(next[c].begin());
        }
        columns = next;
    }
};

std::vector<TokenId> proposed(Lookahead& source, Cursor cursor) {
    std::vector<Proposal> out(32);
    const std::size_t n = source.propose(cursor, 1, {}, out);
    expect_valid(std::span(out).first(n), source, 1, {});
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < n; ++i) tokens.push_back(out[i].token);
    return tokens;
}

/// Walks every n-gram of the reference down the source: its tokens are proposed all the way, and no others at its
/// start.
void expect_pool(Lookahead& source, const PlainLookahead& plain) {
    for (TokenId first = 0; first < kVocab; ++first) {
        const Text text = {first};
        const auto kept = plain.pool.find(first);
        std::vector<TokenId> beginnings;
        if (kept != plain.pool.end())
            for (const Text& ngram : kept->second) beginnings.push_back(ngram.front());
        std::ranges::sort(beginnings);
        beginnings.erase(std::unique(beginnings.begin(), beginnings.end()), beginnings.end());
        std::vector<TokenId> found = proposed(source, source.root(text));
        std::ranges::sort(found);
        ASSERT_EQ(found, beginnings) << "behind " << first;
        if (kept == plain.pool.end()) continue;
        for (const Text& ngram : kept->second) {
            Cursor cursor = source.root(text);
            for (const TokenId token : ngram) {
                ASSERT_THAT(proposed(source, cursor), testing::Contains(token));
                cursor = source.advance(cursor, token);
            }
        }
    }
}

TEST(Lookahead, WindowAndPoolAreThoseOfTheReference) {
    for (const std::size_t g : {1U, 2U, 7U}) {
        Lookahead source({.vocab = kVocab, .max_ngrams = static_cast<std::int64_t>(g)});
        PlainLookahead plain{.n = 5, .g = g};
        Text text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        // The first tree shows what the window begins with: a chain of seven tokens of the text.
        TokenTree tree;
        tree.reset(text.back());
        const ShapeRequest wide{.text = text, .budget = 200, .max_depth = 50};
        source.propose_shape(tree, wide);
        ASSERT_EQ(tree.size(), 8);
        for (const TreeNode node : tree.draft_nodes()) {
            EXPECT_EQ(tree.parent(node), TreeNode(node.index - 1));
            EXPECT_THAT(text, testing::Contains(tree.token(node)));
            plain.columns.push_back({tree.token(node)});
        }
        for (int step = 0; step < 60; ++step) {
            tree.reset(text.back());
            source.propose_shape(tree, {.text = text, .budget = 200, .max_depth = 50});
            for (std::size_t c = 0; c < plain.columns.size(); ++c) {
                // The column's whole path stands in the tree.
                std::optional<TreeNode> node = kTreeRoot;
                for (std::size_t i = 0; i <= c && node; ++i) node = tree.child(*node, plain.columns[i].front());
                for (std::size_t row = 1; row < plain.columns[c].size() && node; ++row)
                    node = tree.child(*node, plain.columns[c][row]);
                ASSERT_TRUE(node) << "step " << step << ", column " << c;
            }
            plain.pass(text);
            pass(source, text, tree);
            expect_pool(source, plain);
        }
        EXPECT_GT(plain.pool.size(), 5U);
        source.reset();
        EXPECT_TRUE(proposed(source, source.root({text})).empty());
    }
}

TEST(Lookahead, ItsOwnTreeCommitsMoreThanOneTokenAPass) {
    Lookahead source({.vocab = kVocab});
    Text text = {1, 2, 3, 4};
    std::int64_t n_tokens = 0;
    int n_passes = 0;
    TokenTree tree;
    for (; n_passes < 100; ++n_passes) {
        tree.reset(text.back());
        const ShapeRequest request{.text = text, .budget = 64, .max_depth = 12};
        source.propose_shape(tree, request);
        expect_within(tree, request);
        n_tokens += pass(source, text, tree);
    }
    // The target's own text is walked into n-grams of four tokens: well above plain decoding.
    EXPECT_GT(n_tokens, 3 * n_passes);
    for (std::size_t i = 4; i < text.size(); ++i) EXPECT_EQ(text[i], target_next(std::span(text).first(i)));
}

TEST(Lookahead, LeftoverTakesWholeColumnsOnlyAsFarAsTheyFit) {
    std::mt19937 random(2);
    Lookahead source({.vocab = kVocab});
    Text text = {1, 2, 3, 4};
    int n_empty = 0;
    int n_whole = 0;
    for (int round = 0; round < 400; ++round) {
        // A finished tree of other guesses.
        TokenTree tree;
        tree.reset(text.back());
        const auto n_others = static_cast<std::int32_t>(random() % 12);
        while (tree.size() <= n_others)
            tree.add(TreeNode(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(tree.size()))),
                     static_cast<TokenId>(random() % kVocab));
        std::int32_t deepest = 0;
        for (const TreeNode node : tree.nodes()) deepest = std::max(deepest, tree.depth(node));
        const ShapeRequest request{.text = text,
                                   .budget = tree.size() + static_cast<std::int64_t>(random() % 40),
                                   .max_depth = deepest + static_cast<std::int64_t>(random() % 12)};
        const TokenTree before = tree;
        source.fill_unused_nodes(tree, request);
        expect_within(tree, request);
        // What was there stays where it is.
        EXPECT_TRUE(std::ranges::equal(tree.tokens().first(before.tokens().size()), before.tokens()));
        EXPECT_TRUE(std::ranges::equal(tree.parents().first(before.parents().size()), before.parents()));
        n_empty += tree.size() == before.size() ? 1 : 0;
        n_whole += tree.size() >= before.size() + 20 ? 1 : 0;
        pass(source, text, tree);
    }
    EXPECT_GT(n_empty, 5);
    EXPECT_GT(n_whole, 5);
}

TEST(Lookahead, TeachesNothingWithoutLogitsAndPassesOverRowsThatAreNoNumbers) {
    Lookahead source({.vocab = kVocab});
    Text text = {1, 2, 3, 4};
    TokenTree tree;
    const TreeNode accepted[] = {kTreeRoot};
    for (int step = 0; step < 20; ++step) {
        tree.reset(text.back());
        source.propose_shape(tree, {.text = text, .budget = 64, .max_depth = 12});
        ASSERT_EQ(tree.size(), 8) << "the window stays as it began";
        const std::vector<float> none(8 * kVocab, std::numeric_limits<float>::quiet_NaN());
        text.push_back(5);
        if (step % 2 == 0) {
            source.observe({.text = text, .n_new = 1, .tree = &tree, .accepted = accepted});
        } else {
            source.observe({.text = text,
                            .n_new = 1,
                            .tree = &tree,
                            .logits = matrix_view(none.data(), 8, kVocab),
                            .accepted = accepted});
        }
    }
}

TEST(Lookahead, APathThatLeavesAnNgramGoesOnWithItsLastToken) {
    Lookahead source({.vocab = kVocab, .ngram_tokens = 4, .window_columns = 5});
    Text text = {1, 2, 3, 4};
    for (int step = 0; step < 60; ++step) {
        TokenTree tree;
        tree.reset(text.back());
        source.propose_shape(tree, {.text = text, .budget = 200, .max_depth = 50});
        pass(source, text, tree);
    }
    int n_checked = 0;
    for (TokenId first = 0; first < kVocab; ++first) {
        const Text start = {first};
        for (const TokenId token : proposed(source, source.root(start))) {
            const Cursor inside = source.advance(source.root(start), token);
            // Inside an n-gram, n-grams that begin with the path's last token speak as well.
            const Text last = {token};
            const std::vector<TokenId> found = proposed(source, inside);
            for (const TokenId other : proposed(source, source.root(last)))
                EXPECT_THAT(found, testing::Contains(other));
            for (TokenId off = 0; off < kVocab; ++off) {
                if (std::ranges::find(found, off) != found.end()) continue;
                const Text after = {off};
                EXPECT_EQ(source.advance(inside, off), source.root(after));
                ++n_checked;
            }
        }
    }
    EXPECT_GT(n_checked, 50);
}

}  // namespace
}  // namespace slipstream::draft
