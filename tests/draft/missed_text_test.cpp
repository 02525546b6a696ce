// What tables hear that were not asked for a while: a listener that applies what it is told, and nothing else, knows
// the text whenever it is asked.
#include "draft/control/missed_text.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

// Applies observations as source.h defines them, and refuses what they may not be.
struct Listener {
    std::vector<TokenId> text;

    void hear(const Observation& observation) {
        const auto length = static_cast<std::size_t>(std::ssize(observation.text));
        const auto n_new = static_cast<std::size_t>(observation.n_new);
        ASSERT_LE(n_new, length);
        if (n_new == 0) {
            ASSERT_LE(length, text.size()) << "a cut to more than was known";
            text.resize(length);
        } else if (n_new == length) {
            text.assign(observation.text.begin(), observation.text.end());
        } else {
            ASSERT_EQ(length - n_new, text.size());
            text.insert(text.end(), observation.text.end() - observation.n_new, observation.text.end());
        }
        ASSERT_TRUE(std::ranges::equal(text, observation.text));
    }
};

TEST(MissedText, WhoMissedNothingHearsWhatIsObserved) {
    MissedText missed;
    const std::vector<TokenId> text{1, 2, 3, 4};
    const TokenTree tree;
    EXPECT_EQ(missed.told({.text = std::span(text).first(2), .n_new = 2}).n_new, 2);
    EXPECT_FALSE(missed.behind(std::span(text).first(2)));
    const Observation pass = missed.told({.text = text, .n_new = 2, .tree = &tree});
    EXPECT_EQ(pass.n_new, 2);
    EXPECT_EQ(pass.tree, &tree);
    EXPECT_EQ(missed.told({.text = std::span(text).first(3), .n_new = 0}).n_new, 0);
}

TEST(MissedText, WhatWasMissedComesWithoutItsTree) {
    MissedText missed;
    const std::vector<TokenId> text{1, 2, 3, 4, 5, 6};
    const TokenTree tree;
    static_cast<void>(missed.told({.text = std::span(text).first(2), .n_new = 2}));
    EXPECT_TRUE(missed.behind(text));
    const Observation late = missed.told({.text = text, .n_new = 1, .tree = &tree});
    EXPECT_EQ(late.n_new, 4);
    EXPECT_EQ(late.tree, nullptr);
    EXPECT_FALSE(missed.behind(text));
}

TEST(MissedText, TheRestOfATextThatEnds) {
    MissedText missed;
    const std::vector<TokenId> text{1, 2, 3, 4, 5, 6};
    const TokenTree tree;
    static_cast<void>(missed.told({.text = std::span(text).first(2), .n_new = 2}));
    EXPECT_FALSE(missed.rest());
    missed.miss({.text = std::span(text).first(3), .n_new = 1, .tree = &tree});
    missed.miss({.text = std::span(text).first(5), .n_new = 2, .tree = &tree});
    const auto rest = missed.rest();
    ASSERT_TRUE(rest);
    EXPECT_TRUE(std::ranges::equal(rest->text, std::span(text).first(5)));
    EXPECT_EQ(rest->n_new, 3);
    EXPECT_FALSE(missed.rest());
    missed.miss({.text = text, .n_new = 1, .tree = &tree});
    static_cast<void>(missed.told({.text = std::span(text).first(4), .n_new = 0}));
    EXPECT_FALSE(missed.rest()) << "what was cut off is nobody's";
}

TEST(MissedText, ATextMayBeMissedFromItsBeginning) {
    MissedText missed;
    const std::vector<TokenId> old_text{9, 8, 7, 6, 5, 4};
    const std::vector<TokenId> text{1, 2, 3, 4};
    const TokenTree tree;
    static_cast<void>(missed.told({.text = old_text, .n_new = 6}));
    missed.miss({.text = std::span(text).first(3), .n_new = 3});
    EXPECT_TRUE(missed.behind(std::span(text).first(3))) << "though it is shorter than the other";
    missed.miss({.text = text, .n_new = 1, .tree = &tree});
    const Observation late = missed.told({.text = text, .n_new = 0});
    EXPECT_EQ(late.n_new, 4) << "a whole text: it begins";
    missed.miss({.text = std::span(old_text).first(2), .n_new = 2});
    const auto rest = missed.rest();
    ASSERT_TRUE(rest);
    EXPECT_EQ(rest->n_new, 2);
}

TEST(MissedText, AnyCourseOfPassesCutsAndTextsIsHeardWhole) {
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
        MissedText missed;
        Listener listener;
        std::vector<TokenId> text;
        const TokenTree tree;
        for (int step = 0; step < 100; ++step) {
            const std::size_t n_new = 1 + below(5);
            const std::size_t what = text.empty() ? 0 : below(12);
            Observation observation;
            if (what == 0) {
                if (const auto rest = missed.rest()) listener.hear(*rest);
                ASSERT_EQ(listener.text, text) << "seed " << seed << ", step " << step;
                text.clear();
            } else if (what == 1) {
                text.resize(1 + below(text.size()));
                listener.hear(missed.told({.text = text, .n_new = 0}));
                continue;
            }
            for (std::size_t i = 0; i < n_new; ++i) text.push_back(static_cast<TokenId>(below(50)));
            const bool pass = what > 3 || (what == 0 && below(2) == 0);  // or a beginning that goes by
            observation = {.text = text, .n_new = static_cast<std::int64_t>(n_new), .tree = pass ? &tree : nullptr};
            // A pass may go by without them.
            if (!pass || below(3) > 0) {
                listener.hear(missed.told(observation));
            } else {
                missed.miss(observation);
            }
            if (below(10) == 0) {
                if (const auto rest = missed.rest()) listener.hear(*rest);
                ASSERT_EQ(listener.text, text) << "seed " << seed << ", step " << step;
            }
            if (below(4) == 0 && missed.behind(text)) listener.hear(missed.told({.text = text, .n_new = 0}));
            if (!missed.behind(text)) {
                ASSERT_EQ(listener.text, text) << "seed " << seed << ", step " << step;
            }
            if (HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
