// The source "context": valid proposals on any course of texts, what repeats is expected, and what persists.
#include "draft/sources/context_source.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/draft/changing_text.h"

namespace slipstream::draft {
namespace {

constexpr TokenId kVocab = 60;

std::vector<Proposal> behind(ContextSource& source, std::span<const TokenId> text, std::span<const TokenId> path = {},
                             const PathNoise& noise = {}, std::size_t n = 128) {
    Cursor cursor = source.root(text);
    for (const TokenId token : path) {
        cursor = source.advance(cursor, token);
        if (cursor == kNowhere) return {};
    }
    std::vector<Proposal> out(n);
    out.resize(source.propose(cursor, std::ssize(text) + std::ssize(path), noise, out));
    return out;
}

void expect_same(const std::vector<Proposal>& a, const std::vector<Proposal>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].token, b[i].token);
        EXPECT_EQ(a[i].probability, b[i].probability);
        EXPECT_EQ(a[i].bin, b[i].bin);
    }
}

std::vector<TokenId> repeating(std::size_t n, TokenId period) {
    std::vector<TokenId> text(n);
    for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<TokenId>(i) % period;
    return text;
}

void observe(ContextSource& source, std::span<const TokenId> text, std::size_t n_new) {
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(n_new)});
}

TEST(ContextSource, ProposesWhatMayBeProposedWhateverTheCourse) {
    for (std::uint32_t seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE(seed);
        const TokenId alphabet = seed % 3 == 0 ? 3 : 40;
        ContextSource source(kVocab, {});
        ChangingText changing(seed, alphabet);
        const PathNoise none;
        const PathNoise noise(seed);
        for (int i = 0; i < 150; ++i) {
            changing.change(source);
            const std::vector<TokenId>& text = changing.text();
            Cursor cursor = source.root(text);
            for (std::int64_t depth = 0; depth < 6 && cursor != kNowhere; ++depth) {
                const auto position = std::ssize(text) + depth;
                std::vector<Proposal> out(1 + changing.below(130));
                for (const PathNoise* each : {&none, &noise}) {
                    const std::size_t n = source.propose(cursor, position, *each, out);
                    ASSERT_LE(n, out.size());
                    expect_valid(std::span(out).first(n), source, position, *each);
                    for (const Proposal& proposal : std::span(out).first(n))
                        EXPECT_TRUE(proposal.token >= 0 && proposal.token < alphabet);
                }
                cursor = source.advance(cursor, changing.token());
            }
            TokenTree tree;
            tree.reset(text.back());
            const ShapeRequest request{.text = text,
                                       .budget = 1 + static_cast<std::int64_t>(changing.below(30)),
                                       .max_depth = static_cast<std::int64_t>(changing.below(8)),
                                       .noise = &none};
            source.propose_shape(tree, request);
            expect_within(tree, request);
        }
    }
}

TEST(ContextSource, ExpectsWhatRepeats) {
    ContextSource source(kVocab, {});
    const std::vector<TokenId> text = repeating(300, 23);
    observe(source, text, text.size());
    TokenId next = static_cast<TokenId>(text.size() % 23);
    std::vector<TokenId> path;
    for (int depth = 0; depth < 8; ++depth, next = (next + 1) % 23) {
        const std::vector<Proposal> proposals = behind(source, text, path);
        ASSERT_FALSE(proposals.empty());
        EXPECT_EQ(proposals.front().token, next);
        EXPECT_GT(proposals.front().probability, 0.8F);
        path.push_back(next);
    }
}

TEST(ContextSource, SaysNothingBehindWhatItNeverSaw) {
    ContextSource source(kVocab, {});
    const std::vector<TokenId> text = repeating(50, 10);
    EXPECT_TRUE(behind(source, text).empty());  // nothing at all was seen
    observe(source, text, text.size());
    EXPECT_EQ(source.advance(source.root(text), 33), kNowhere);
    EXPECT_FALSE(behind(source, text).empty());
    source.reset();
    observe(source, std::span(text).first(1), 1);
    EXPECT_TRUE(behind(source, std::span(text).first(1), std::vector<TokenId>{4}).empty());
}

TEST(ContextSource, UnderTheRootTheTextsOwnTokensAreGuessedWhateverStandsBefore) {
    ContextSource source(kVocab, {});
    std::vector<TokenId> text = repeating(100, 5);
    text.push_back(50);  // never seen before
    observe(source, text, text.size());
    const std::vector<Proposal> proposals = behind(source, text);
    EXPECT_EQ(proposals.size(), 6U);
}

TEST(ContextSource, ATextInPiecesTeachesTheSame) {
    ChangingText random(5, 30);
    std::vector<TokenId> text;
    for (int i = 0; i < 700; ++i) text.push_back(random.token());
    text.insert(text.end(), text.begin() + 100, text.begin() + 200);
    ContextSource whole(kVocab, {});
    ContextSource pieces(kVocab, {});
    observe(whole, text, text.size());
    observe(pieces, std::span(text).first(50), 50);
    for (std::size_t n = 50; n < text.size(); n += 5) observe(pieces, std::span(text).first(n + 5), 5);
    expect_same(behind(whole, text), behind(pieces, text));
    expect_same(behind(whole, text, std::vector<TokenId>{text[200]}),
                behind(pieces, text, std::vector<TokenId>{text[200]}));
}

TEST(ContextSource, APromptThatGoesOnFromTheLastIsCountedOnce) {
    ChangingText random(6, 30);
    std::vector<TokenId> text;
    for (int i = 0; i < 200; ++i) text.push_back(random.token());
    ContextSource turns(kVocab, {});
    ContextSource once(kVocab, {});
    observe(turns, std::span(text).first(120), 120);
    observe(turns, text, text.size());  // the whole text is handed over again
    observe(once, std::span(text).first(120), 120);
    observe(once, text, 80);
    expect_same(behind(turns, text), behind(once, text));
}

TEST(ContextSource, AnotherTextFollowsWithoutACut) {
    ContextSource source(kVocab, {});
    const std::vector<TokenId> first = repeating(200, 11);
    std::vector<TokenId> second;
    for (int i = 0; i < 90; ++i) second.push_back(static_cast<TokenId>(40 + i % 9));
    observe(source, first, first.size());
    observe(source, second, second.size());
    EXPECT_EQ(behind(source, second).front().token, 40);
    // A cut back to its beginning, and on from there.
    second.resize(30);
    observe(source, second, 0);
    second.push_back(static_cast<TokenId>(40 + 30 % 9));
    observe(source, second, 1);
    EXPECT_EQ(behind(source, second).front().token, static_cast<TokenId>(40 + 31 % 9));
}

TEST(ContextSource, WhereTheTableIsFullItBeginsAgainFromTheTextsEnd) {
    constexpr std::size_t max_contexts = 4096;
    ContextSource source(kVocab, {.max_contexts = max_contexts, .shape = {}});
    ChangingText random(7, kVocab);
    std::vector<TokenId> text;
    std::size_t most = 0;
    for (int i = 0; i < 12000; ++i) {
        text.push_back(i % 3000 < 2900 ? random.token() : static_cast<TokenId>(i % 7));
        observe(source, text, 1);
        // Beyond what the text itself takes, of which a copy is kept.
        most = std::max(most, source.memory_bytes() - 4 * text.capacity() * sizeof(TokenId));
    }
    EXPECT_EQ(behind(source, text).front().token, static_cast<TokenId>(12000 % 7));
    EXPECT_LT(most, std::size_t{2} << 20);
}

constexpr TokenId kManyTokens = 4000;

/// Observes `n_texts` (1 or more) random texts of 400 tokens and returns the last one.
std::vector<TokenId> observe_texts(ContextSource& source, int n_texts, std::mt19937& random) {
    std::vector<TokenId> text(400);
    for (int i = 0; i < n_texts; ++i) {
        for (TokenId& token : text) token = static_cast<TokenId>(random() % kManyTokens);
        observe(source, text, text.size());
    }
    return text;
}

// A server's texts differ from each other: what earlier ones had is forgotten, the last one is known as a whole.
TEST(ContextSource, ManyTextsTakeNoMoreMemoryThanAFew) {
    ContextSource source(kManyTokens, {.max_old_contexts = 8192});
    std::mt19937 random(1);
    const auto after = [&](int n_texts) {
        const std::vector<TokenId> text = observe_texts(source, n_texts, random);
        for (std::size_t i = 4; i + 1 < text.size(); ++i) {
            const std::vector<Proposal> next = behind(source, std::span(text).first(i));
            EXPECT_TRUE(std::ranges::any_of(next, [&](const Proposal& each) { return each.token == text[i]; })) << i;
        }
        return source.memory_bytes();
    };
    const std::size_t few = after(20);
    EXPECT_EQ(after(500), few);
}

TEST(ContextSource, TheSecondTextTakesTheMemoryOfMany) {
    ContextSource source(kManyTokens, {});
    std::mt19937 random(1);
    const auto after = [&](int n_texts) {
        observe_texts(source, n_texts, random);
        return source.memory_bytes();
    };
    const std::size_t first = after(1);
    const std::size_t second = after(1);
    EXPECT_LT(first, second);
    EXPECT_EQ(after(100), second);
}

TEST(ContextSource, WhatWasSaidBeforeTheTableWasFilledAgainIsNotSaidAgain) {
    ContextSource source(kVocab, {.max_contexts = 4096, .shape = {}});
    ChangingText random(9, 40);
    std::vector<TokenId> text;
    const auto add = [&](TokenId token) {
        text.push_back(token);
        observe(source, text, 1);
    };
    for (int i = 0; i < 300; ++i) add(random.token());
    const std::vector<TokenId> path = {50, 51};
    for (const TokenId token : {50, 51, 52}) add(token);
    ASSERT_EQ(behind(source, text, path, {}, 4).front().token, 52);
    while (!behind(source, text, std::span(path).first(1)).empty()) {
        ASSERT_LT(text.size(), 5000U);
        add(random.token());
    }
    // As often behind the same tokens, and few tokens later by the count of those that are left.
    for (const TokenId token : {50, 51, 53}) add(token);
    const std::vector<Proposal> proposals = behind(source, text, path, {}, 4);
    ASSERT_EQ(proposals.size(), 1U);
    EXPECT_EQ(proposals.front().token, 53);
}

TEST(ContextSource, NoiseRanksByItself) {
    ContextSource source(kVocab, {});
    ChangingText random(8, 20);
    std::vector<TokenId> text;
    for (int i = 0; i < 400; ++i) text.push_back(random.token());
    observe(source, text, text.size());
    int n_other = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const PathNoise noise(seed);
        const std::vector<Proposal> proposals = behind(source, text, {}, noise, 1);
        ASSERT_EQ(proposals.size(), 1U);
        n_other += proposals.front().token != behind(source, text, {}, {}, 1).front().token ? 1 : 0;
    }
    EXPECT_GT(n_other, 10);
    EXPECT_LT(n_other, 50);
}

class ContextSourceFile : public testing::Test {
protected:
    static TableWriter saved(const ContextSource& source) {
        TableWriter writer;
        source.save(writer);
        return writer;
    }
    // What the loader throws; nothing where it takes the section up.
    static std::optional<std::string> refusal(ContextSource& source, const TableWriter& writer) {
        try {
            TableReader reader(writer.bytes(), "a test");
            source.load(reader);
        } catch (const FormatError& error) {
            return error.what();
        }
        return std::nullopt;
    }
};

TEST_F(ContextSourceFile, WhatWasLearntOfTextsInGeneralServesTheNextOne) {
    ContextSource before(kVocab, {});
    const std::vector<TokenId> text = repeating(900, 23);
    observe(before, text, text.size());
    const TableWriter file = saved(before);
    ContextSource after(kVocab, {});
    ASSERT_EQ(refusal(after, file), std::nullopt);
    const TableWriter again = saved(after);
    EXPECT_TRUE(std::ranges::equal(again.bytes(), file.bytes()));
    // Counts stay behind; a text that repeats itself is believed sooner.
    EXPECT_TRUE(behind(after, text).empty());
    ContextSource fresh(kVocab, {});
    std::vector<TokenId> other;
    for (int i = 0; i < 30; ++i) other.push_back(static_cast<TokenId>(30 + i % 13));
    observe(after, other, other.size());
    observe(fresh, other, other.size());
    EXPECT_EQ(behind(after, other).front().token, behind(fresh, other).front().token);
    EXPECT_GT(behind(after, other).front().probability, behind(fresh, other).front().probability);
}

TEST_F(ContextSourceFile, ADamagedSectionIsRefusedAndTheSourceIsAsBefore) {
    ContextSource source(kVocab, {});
    const std::vector<TokenId> text = repeating(300, 23);
    observe(source, text, text.size());
    const TableWriter before = saved(source);
    const std::vector<Proposal> proposals = behind(source, text);
    EXPECT_NE(refusal(source, TableWriter{}), std::nullopt);
    TableWriter short_list;
    short_list.f32s(std::vector<float>(7, 0.5F));
    EXPECT_NE(refusal(source, short_list), std::nullopt);
    TableWriter not_numbers;
    not_numbers.f32s(std::vector<float>(ContextMixer().state().size(), std::numeric_limits<float>::quiet_NaN()));
    EXPECT_NE(refusal(source, not_numbers), std::nullopt);
    EXPECT_TRUE(std::ranges::equal(saved(source).bytes(), before.bytes()));
    expect_same(behind(source, text), proposals);
}

}  // namespace
}  // namespace slipstream::draft
