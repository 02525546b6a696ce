// The context n-gram drafts against a plain count over the whole text.
#include "draft/sources/context_ngram.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

using testing::ElementsAre;

using Text = std::vector<TokenId>;

struct PlainDraft {
    Text tokens;
    std::int64_t count;
    bool operator==(const PlainDraft&) const = default;
};

/// All places, newest first, at most kMostPlaces; every w-gram counted.
std::vector<PlainDraft> reference(const Text& text, std::size_t w) {
    std::vector<PlainDraft> drafts;
    std::size_t n_places = 0;
    for (std::size_t behind = text.size(); behind-- > 1;) {
        if (text[behind - 1] != text.back()) continue;
        if (++n_places > kMostPlaces) break;
        if (behind + w > text.size()) continue;
        const auto begin = text.begin() + static_cast<std::ptrdiff_t>(behind);
        const Text tokens(begin, begin + static_cast<std::ptrdiff_t>(w));
        const auto found = std::ranges::find(drafts, tokens, &PlainDraft::tokens);
        if (found == drafts.end()) {
            drafts.push_back({tokens, 1});
        } else {
            ++found->count;
        }
    }
    std::ranges::stable_sort(drafts, [](const PlainDraft& a, const PlainDraft& b) { return a.count > b.count; });
    return drafts;
}

TEST(ContextNgram, DraftsAreThoseOfAPlainCount) {
    std::mt19937 random(11);
    for (const std::size_t n_tokens : {1U, 2U, 7U, 60U, 700U, 3000U}) {
        for (int round = 0; round < 20; ++round) {
            Text text;
            for (std::size_t i = 0; i < n_tokens; ++i) text.push_back(static_cast<TokenId>(random() % 5));
            for (const std::size_t w : {1U, 2U, 5U}) {
                const std::vector<PlainDraft> expected = reference(text, w);
                const ContextDrafts found = context_drafts(text, w);
                const auto best = found.best(1000);
                ASSERT_EQ(best.size(), expected.size());
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    ASSERT_THAT(best[i].tokens, testing::ElementsAreArray(expected[i].tokens));
                    ASSERT_EQ(best[i].count, expected[i].count);
                }
                EXPECT_EQ(found.best(3).size(), std::min<std::size_t>(3, expected.size()));
            }
        }
    }
}

TEST(ContextNgram, FrequentDraftsComeFirstThenRecentOnesAndShortPlacesGiveNone) {
    const Text text = {9, 1, 1, 9, 2, 2, 9, 3, 3, 9, 1, 1, 9, 4, 9};
    const ContextDrafts drafts = context_drafts(text, 2);
    // The last place but one is followed by one token and the query itself: 4, 9. The places stand at 0, 3, 6, 9, 12.
    const auto best = drafts.best(10);
    ASSERT_EQ(best.size(), 4U);
    EXPECT_EQ(drafts.n_places, 5);
    EXPECT_THAT(best[0].tokens, ElementsAre(1, 1));
    EXPECT_EQ(best[0].count, 2);
    EXPECT_THAT(best[1].tokens, ElementsAre(4, 9));
    EXPECT_THAT(best[2].tokens, ElementsAre(3, 3));
    EXPECT_THAT(best[3].tokens, ElementsAre(2, 2));
    EXPECT_EQ(context_drafts(text, 3).n_places, 4);
}

TEST(ContextNgram, ShortTextsGiveNothing) {
    EXPECT_TRUE(context_drafts({}, 1).best(5).empty());
    EXPECT_TRUE(context_drafts(Text{1}, 1).best(5).empty());
    EXPECT_TRUE(context_drafts(Text{1, 2}, 1).best(5).empty());
    EXPECT_EQ(context_drafts(Text{1, 1}, 1).best(5).size(), 1U);
}

}  // namespace
}  // namespace slipstream::draft
