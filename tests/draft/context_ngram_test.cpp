// The context n-gram index against loops over the whole text, while the text grows, is cut and changes.
#include "draft/papers/context_ngram.h"

#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

using testing::ElementsAre;

using Text = std::vector<TokenId>;

struct PlainDraft {
    Text tokens;
    std::int64_t count;
    std::size_t latest;
    bool operator==(const PlainDraft&) const = default;
};

/// All places, newest first, at most max_places; every w-gram counted.
std::vector<PlainDraft> reference(const Text& text, std::size_t q, std::size_t max_places, std::size_t k,
                                  std::size_t w) {
    std::vector<PlainDraft> drafts;
    if (text.size() < q) return drafts;
    std::size_t n_places = 0;
    for (std::size_t last = text.size() - 1; last-- > q - 1;) {
        const auto at = static_cast<std::ptrdiff_t>(last);
        if (!std::equal(text.end() - static_cast<std::ptrdiff_t>(q), text.end(),
                        text.begin() + at + 1 - static_cast<std::ptrdiff_t>(q)))
            continue;
        if (++n_places > max_places) break;
        if (last + w >= text.size()) continue;
        const Text tokens(text.begin() + at + 1, text.begin() + at + 1 + static_cast<std::ptrdiff_t>(w));
        const auto found = std::ranges::find(drafts, tokens, &PlainDraft::tokens);
        if (found == drafts.end()) {
            drafts.push_back({tokens, 1, last});
        } else {
            ++found->count;
        }
    }
    std::ranges::stable_sort(drafts, [](const PlainDraft& a, const PlainDraft& b) { return a.count > b.count; });
    drafts.resize(std::min(drafts.size(), k));
    return drafts;
}

void expect_drafts(ContextNgramIndex& index, const Text& text, std::size_t q, std::size_t max_places) {
    for (const std::size_t w : {1U, 2U, 5U}) {
        const std::vector<PlainDraft> expected = reference(text, q, max_places, 4, w);
        const ContextDrafts drafts = index.drafts(4, static_cast<std::int64_t>(w));
        ASSERT_EQ(drafts.best.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_THAT(drafts.best[i].tokens, testing::ElementsAreArray(expected[i].tokens));
            EXPECT_EQ(drafts.best[i].count, expected[i].count);
        }
    }
}

TEST(ContextNgram, DraftsAreThoseOfAPlainCount) {
    std::mt19937 random(11);
    for (const std::size_t q : {1U, 2U, 3U}) {
        for (const std::size_t max_places : {3U, 512U}) {
            ContextNgramIndex index(
                {.query_tokens = static_cast<std::int64_t>(q), .max_places = static_cast<std::int64_t>(max_places)});
            Text text;
            for (int round = 0; round < 300; ++round) {
                const auto kind = random() % 12;
                if (kind == 0) {
                    text.resize(random() % (text.size() + 1));
                    index.observe({.text = text});
                    // What follows a cut may be any text: here now and then one that differs before the cut as well.
                    if (!text.empty() && random() % 2 == 0) text[random() % text.size()] = 0;
                } else if (kind == 1 && round % 4 == 0) {
                    index.reset();
                    text.clear();
                }
                const std::size_t n = 1 + random() % 8;
                for (std::size_t i = 0; i < n; ++i) text.push_back(static_cast<TokenId>(random() % 5));
                index.observe({.text = text, .n_new = static_cast<std::int64_t>(n)});
                ASSERT_TRUE(std::ranges::equal(index.text(), text));
                expect_drafts(index, text, q, max_places);
            }
        }
    }
}

TEST(ContextNgram, AnotherTextBehindACutIsFollowedWhateverItSays) {
    ContextNgramIndex index({});
    Text text = {1, 2, 3, 1, 2, 4, 1};
    index.observe({.text = text, .n_new = 7});
    text.resize(3);
    index.observe({.text = text});
    // A new prompt that shares two tokens and says that all of it is new.
    text = {1, 2, 7, 8, 9, 2};
    index.observe({.text = text, .n_new = 6});
    const ContextDrafts drafts = index.drafts(10, 3);
    ASSERT_EQ(drafts.best.size(), 1U);
    EXPECT_THAT(drafts.best[0].tokens, ElementsAre(7, 8, 9));
    EXPECT_EQ(drafts.n_places, 1);
}

TEST(ContextNgram, FrequentDraftsComeFirstThenRecentOnesAndShortPlacesGiveNone) {
    ContextNgramIndex index({});
    const Text text = {9, 1, 1, 9, 2, 2, 9, 3, 3, 9, 1, 1, 9, 4, 9};
    index.observe({.text = text, .n_new = std::ssize(text)});
    const ContextDrafts drafts = index.drafts(10, 2);
    // The last place but one is followed by one token and the query itself: 4, 9. The places stand at 0, 3, 6, 9, 12.
    ASSERT_EQ(drafts.best.size(), 4U);
    EXPECT_EQ(drafts.n_places, 5);
    EXPECT_THAT(drafts.best[0].tokens, ElementsAre(1, 1));
    EXPECT_EQ(drafts.best[0].count, 2);
    EXPECT_THAT(drafts.best[1].tokens, ElementsAre(4, 9));
    EXPECT_THAT(drafts.best[2].tokens, ElementsAre(3, 3));
    EXPECT_THAT(drafts.best[3].tokens, ElementsAre(2, 2));
    EXPECT_EQ(index.drafts(10, 3).n_places, 4);
    EXPECT_EQ(index.drafts(2, 2).best.size(), 2U);
}

TEST(ContextNgram, ShortTextsGiveNothing) {
    ContextNgramIndex index({.query_tokens = 3});
    EXPECT_TRUE(index.drafts(5, 1).best.empty());
    Text text = {1, 1};
    index.observe({.text = text, .n_new = 2});
    EXPECT_TRUE(index.drafts(5, 1).best.empty());
    text.assign(5, 1);
    index.observe({.text = text, .n_new = 3});
    EXPECT_EQ(index.drafts(5, 1).best.size(), 1U);
    text.clear();
    index.observe({.text = text});
    EXPECT_TRUE(index.drafts(5, 1).best.empty());
}

}  // namespace
}  // namespace slipstream::draft
