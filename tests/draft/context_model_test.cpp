// Counts of what followed what, against maps that keep everything.
#include "draft/sources/context_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

using Context = std::vector<TokenId>;

constexpr std::size_t kContexts = std::size_t{1} << 20;

std::uint64_t key_of(std::span<const TokenId> context) {
    std::uint64_t key = ContextModel::kNoTokens;
    for (const TokenId token : context) key = ContextModel::extend(key, token);
    return key;
}

/// Most recent first.
std::vector<ContextModel::Follower> followers_of(const ContextModel& model, std::uint32_t context) {
    std::vector<ContextModel::Follower> followers;
    for (std::uint32_t at = model.context(context).newest; at != ContextModel::kNone; at = model.follower(at).older)
        followers.push_back(model.follower(at));
    EXPECT_EQ(followers.size(), model.context(context).n_followers);
    return followers;
}

// What the model should know, by definition.
class Reference {
public:
    struct Seen {
        std::vector<ContextModel::Follower> recent_first;
        std::uint32_t total = 0;
    };

    void add(std::span<const TokenId> text) {
        const TokenId token = text.back();
        ++counts[token];
        last_seen[token] = static_cast<std::uint32_t>(++n_tokens);
        for (std::size_t order = 1; order <= ContextModel::kMaxOrder && order < text.size(); ++order) {
            const auto context = text.subspan(text.size() - 1 - order, order);
            Seen& seen = contexts[Context(context.begin(), context.end())];
            ++seen.total;
            auto& followers = seen.recent_first;
            std::uint32_t count = 0;
            std::erase_if(followers, [&](const ContextModel::Follower& follower) {
                if (follower.token == token) count = follower.count;
                return follower.token == token;
            });
            followers.insert(followers.begin(), {.token = token, .count = count + 1});
            if (followers.size() > ContextModel::kMaxFollowers) followers.pop_back();
        }
    }

    std::map<Context, Seen> contexts;
    std::map<TokenId, std::uint32_t> counts;
    std::map<TokenId, std::uint32_t> last_seen;
    std::size_t n_tokens = 0;
};

void expect_equal(const ContextModel& model, const Reference& reference, TokenId vocab) {
    ASSERT_EQ(model.n_tokens(), reference.n_tokens);
    for (const auto& [context, seen] : reference.contexts) {
        const std::uint32_t found = model.find(key_of(context));
        ASSERT_NE(found, ContextModel::kNone);
        const std::vector<ContextModel::Follower> followers = followers_of(model, found);
        ASSERT_EQ(model.context(found).total, seen.total);
        ASSERT_EQ(followers.size(), seen.recent_first.size());
        for (std::size_t i = 0; i < seen.recent_first.size(); ++i) {
            ASSERT_EQ(followers[i].token, seen.recent_first[i].token) << "follower " << i;
            ASSERT_EQ(followers[i].count, seen.recent_first[i].count) << "follower " << i;
        }
    }
    std::vector<std::uint32_t> counts;
    for (TokenId token = 0; token < vocab; ++token) {
        const auto count = reference.counts.find(token);
        ASSERT_EQ(model.seen(token).count, count == reference.counts.end() ? 0 : count->second);
        if (count == reference.counts.end()) continue;
        ASSERT_EQ(model.seen(token).last, reference.last_seen.at(token));
        counts.push_back(count->second);
    }
    // The most frequent ones; which of equals is free.
    std::ranges::sort(counts, std::greater<>());
    counts.resize(std::min(counts.size(), ContextModel::kMaxFrequent));
    std::vector<std::uint32_t> listed;
    std::vector<TokenId> tokens(model.frequent().begin(), model.frequent().end());
    for (const TokenId token : tokens) listed.push_back(model.seen(token).count);
    ASSERT_EQ(listed, counts);
    std::ranges::sort(tokens);
    ASSERT_EQ(std::ranges::adjacent_find(tokens), tokens.end()) << "a token is listed twice";
}

// Skewed, so that some tokens are frequent and some contexts come again.
std::vector<TokenId> random_text(std::uint32_t seed, std::size_t n, TokenId vocab, double skew) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform;
    std::vector<TokenId> text(n);
    for (TokenId& token : text)
        token = static_cast<TokenId>(std::pow(uniform(random), skew) * static_cast<double>(vocab));
    return text;
}

TEST(ContextModel, CountsWhatMapsCount) {
    const struct {
        std::size_t n;
        TokenId vocab;
        double skew;
    } cases[] = {{1, 5, 1.0}, {4, 5, 1.0}, {3000, 4, 1.0}, {6000, 70, 2.0}, {12000, 700, 4.0}, {9000, 300, 1.0}};
    for (const auto& [n, vocab, skew] : cases) {
        SCOPED_TRACE(testing::Message() << n << " tokens of " << vocab);
        const std::vector<TokenId> text = random_text(static_cast<std::uint32_t>(n), n, vocab, skew);
        ContextModel model(vocab, kContexts);
        Reference reference;
        for (std::size_t i = 1; i <= n; ++i) {
            model.add(std::span(text).first(i));
            reference.add(std::span(text).first(i));
            if (i == n / 3) expect_equal(model, reference, vocab);
        }
        expect_equal(model, reference, vocab);
    }
}

TEST(ContextModel, KeepsTheMostRecentFollowersOfACommonToken) {
    // Behind token 0 come 200 others, round and round; some of them twice as often.
    ContextModel model(300, kContexts);
    Reference reference;
    std::vector<TokenId> text;
    const auto add = [&](TokenId token) {
        text.push_back(token);
        model.add(text);
        reference.add(text);
    };
    for (int round = 0; round < 7; ++round)
        for (TokenId i = 1; i <= 200; ++i)
            for (int times = i % 3 == 0 ? 2 : 1; times > 0; --times) {
                add(0);
                add(i);
            }
    const TokenId zero = 0;
    const std::vector<ContextModel::Follower> followers = followers_of(model, model.find(key_of({&zero, 1})));
    EXPECT_EQ(followers.size(), ContextModel::kMaxFollowers);
    EXPECT_EQ(followers.front().token, 200);
    expect_equal(model, reference, 300);
}

TEST(ContextModel, WhatWasNeverSeenIsNotFound) {
    ContextModel model(10, kContexts);
    const std::vector<TokenId> text = {1, 2, 3, 1, 2, 4};
    EXPECT_EQ(model.find(key_of(std::span(text).first(1))), ContextModel::kNone);
    EXPECT_TRUE(model.frequent().empty());
    for (std::size_t i = 1; i <= text.size(); ++i) model.add(std::span(text).first(i));
    const std::vector<Context> unseen = {{4}, {2, 1}, {3, 2}, {2, 2}, {2, 3, 1, 1}};
    for (const Context& context : unseen) EXPECT_EQ(model.find(key_of(context)), ContextModel::kNone);
    // Nothing stands behind the last token yet.
    EXPECT_EQ(model.find(key_of(std::span(text).last(2))), ContextModel::kNone);
    // One and two tokens of the same ids are two contexts.
    EXPECT_NE(key_of(Context{0, 0}), key_of(Context{0}));
    EXPECT_NE(key_of(Context{1, 2}), key_of(Context{2, 1}));
}

TEST(ContextModel, AClearedModelIsANewOne) {
    const std::vector<TokenId> first = random_text(1, 5000, 200, 2.0);
    const std::vector<TokenId> second = random_text(2, 3000, 200, 3.0);
    ContextModel model(200, kContexts);
    for (std::size_t i = 1; i <= first.size(); ++i) model.add(std::span(first).first(i));
    model.clear();
    EXPECT_EQ(model.find(key_of(std::span(first).first(1))), ContextModel::kNone);
    Reference reference;
    for (std::size_t i = 1; i <= second.size(); ++i) {
        model.add(std::span(second).first(i));
        reference.add(std::span(second).first(i));
    }
    expect_equal(model, reference, 200);
}

TEST(ContextModel, SaysWhenItIsFullAndStaysWithinItsBound) {
    constexpr std::size_t max_contexts = 5000;
    constexpr TokenId vocab = 1000;
    ContextModel model(vocab, max_contexts);
    std::mt19937 random(3);
    std::vector<TokenId> text;
    Reference reference;
    while (!model.full()) {
        text.push_back(static_cast<TokenId>(random() % vocab));
        model.add(text);
        reference.add(text);
    }
    EXPECT_LE(reference.contexts.size(), max_contexts);
    EXPECT_GT(reference.contexts.size(), max_contexts - 2 * ContextModel::kMaxOrder);
    // A table at most half full, of a power of two of places; followers; three numbers a token of the vocabulary.
    EXPECT_LT(model.memory_bytes(), 16384 * 40 + 4 * text.size() * 4 * sizeof(ContextModel::Follower) + vocab * 9);
    expect_equal(model, reference, vocab);
}

TEST(ContextModel, MemoryDoesNotGrowWithATextThatRepeatsItself) {
    ContextModel model(50, kContexts);
    std::vector<TokenId> text;
    std::size_t at_first = 0;
    for (int i = 0; i < 100000; ++i) {
        text.push_back(static_cast<TokenId>((i % 37) * (i % 37) % 37));
        model.add(text);
        if (i == 10000) at_first = model.memory_bytes();
    }
    EXPECT_EQ(model.memory_bytes(), at_first);
}

}  // namespace
}  // namespace slipstream::draft
