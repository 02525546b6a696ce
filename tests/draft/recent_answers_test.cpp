// What was said behind a context not long ago: said again while nothing new is known, and not a token longer.
#include "draft/sources/recent_answers.h"

#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

const std::vector<Proposal> kWords = {{.token = 4, .probability = 0.5F, .cell = 2},
                                      {.token = 1, .probability = 0.25F, .cell = 3}};
constexpr RecentAnswers::Question kQuestion{.key = 0x123456789abcdefU, .total = 7, .now = 1000, .n_asked = 8};

std::vector<TokenId> tokens_of(std::span<const Proposal> words) {
    std::vector<TokenId> tokens;
    for (const Proposal& word : words) tokens.push_back(word.token);
    return tokens;
}

class RecentAnswersTest : public testing::Test {
protected:
    RecentAnswersTest() { answers_.keep(kQuestion, kWords); }
    [[nodiscard]] bool knows(const RecentAnswers::Question& question) const { return !answers_.find(question).empty(); }

    RecentAnswers answers_;
};

TEST_F(RecentAnswersTest, SaysAgainWhatWasKept) {
    EXPECT_EQ(tokens_of(answers_.find(kQuestion)), (std::vector<TokenId>{4, 1}));
    EXPECT_EQ(answers_.find(kQuestion)[1].cell, 3);
    RecentAnswers::Question fewer = kQuestion;
    fewer.n_asked = 2;
    EXPECT_TRUE(knows(fewer));
}

TEST_F(RecentAnswersTest, KnowsNothingOfWhatWasNotAsked) {
    RecentAnswers::Question other = kQuestion;
    other.key ^= 1;  // the same place
    EXPECT_FALSE(knows(other));
    other = kQuestion;
    other.n_asked = 9;
    EXPECT_FALSE(knows(other));
}

TEST_F(RecentAnswersTest, IsSilentOnceTheContextWasSeenAgainOrLongAgo) {
    RecentAnswers::Question later = kQuestion;
    ++later.total;
    EXPECT_FALSE(knows(later));
    later = kQuestion;
    later.now += RecentAnswers::kFresh;
    EXPECT_TRUE(knows(later));
    ++later.now;
    EXPECT_FALSE(knows(later));
    later.now = kQuestion.now - 1;  // a shorter text than then: another one
    EXPECT_FALSE(knows(later));
}

TEST_F(RecentAnswersTest, TheNewestAnswerOfAPlaceStays) {
    RecentAnswers::Question other = kQuestion;
    other.key ^= 1;
    answers_.keep(other, std::span(kWords).last(1));
    EXPECT_FALSE(knows(kQuestion));
    EXPECT_EQ(tokens_of(answers_.find(other)), (std::vector<TokenId>{1}));
    answers_.clear();
    EXPECT_FALSE(knows(other));
}

TEST_F(RecentAnswersTest, KeepsNoMoreThanItHasRoomFor) {
    const std::vector<Proposal> many(RecentAnswers::kMostWords + 5, kWords[0]);
    answers_.keep(kQuestion, many);
    EXPECT_EQ(answers_.find(kQuestion).size(), RecentAnswers::kMostWords);
}

}  // namespace
}  // namespace slipstream::draft
