// SpellingMatcher: the longest match at the leftmost place, against a search through all spellings, and with so many
// spellings that any work for each of them a byte would show.
#include "runtime/text/tokenizer/token_matchers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"

namespace slipstream {
namespace {

using Entry = SpellingMatcher::Entry;

std::optional<SpellingMatcher::Match> search_all(const std::vector<Entry>& entries, std::string_view text,
                                                 std::size_t from) {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        const Entry* best = nullptr;
        for (const Entry& entry : entries)
            if (!entry.spelling.empty() && text.substr(begin).starts_with(entry.spelling) &&
                (best == nullptr || entry.spelling.size() > best->spelling.size()))
                best = &entry;
        if (best != nullptr) return SpellingMatcher::Match{begin, best->spelling.size(), best->id};
    }
    return std::nullopt;
}

void expect_match(const std::optional<SpellingMatcher::Match>& found, std::size_t begin, std::size_t length,
                  TokenId id) {
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->begin, begin);
    EXPECT_EQ(found->length, length);
    EXPECT_EQ(found->id, id);
}

TEST(SpellingMatcher, TheLongestAtTheLeftmostPlaceWins) {
    const SpellingMatcher matcher(
        {{"ab", 1}, {"abcd", 2}, {"", 3}, {"b", 4}, {"ab", 5}, {"\xff\x80", 6}, {"abcde", 7}});
    expect_match(matcher.find("xxabcx", 0), 2, 2, 1);
    expect_match(matcher.find("xxabcdx", 0), 2, 4, 2);
    expect_match(matcher.find("abcd", 0), 0, 4, 2);
    expect_match(matcher.find("abcd", 1), 1, 1, 4);
    expect_match(matcher.find("a\xff\x80", 0), 1, 2, 6);
    EXPECT_FALSE(matcher.find("a\xff", 0).has_value());
    EXPECT_FALSE(matcher.find("abcd", 4).has_value());
    EXPECT_FALSE(matcher.find("", 0).has_value());
    const SpellingMatcher none({{"", 1}});
    EXPECT_TRUE(none.empty());
    EXPECT_FALSE(none.find("abc", 0).has_value());
}

TEST(SpellingMatcher, FindsWhatASearchThroughAllFinds) {
    std::mt19937 random(7);
    const auto word = [&](std::size_t max_length) {
        constexpr char letters[] = {'a', 'b', '\x80', '\xff', '\0'};
        std::string text(random() % (max_length + 1), 'a');
        for (char& c : text) c = letters[random() % std::size(letters)];
        return text;
    };
    for (int round = 0; round < 200; ++round) {
        std::vector<Entry> entries;
        for (TokenId id = 0; id < static_cast<TokenId>(random() % 40); ++id) entries.push_back({word(5), id});
        const SpellingMatcher matcher(entries);
        const std::string text = word(60);
        for (std::size_t from = 0; from <= text.size(); ++from) {
            const auto expected = search_all(entries, text, from);
            const auto found = matcher.find(text, from);
            ASSERT_EQ(found.has_value(), expected.has_value()) << "round " << round << ", from " << from;
            if (expected) expect_match(found, expected->begin, expected->length, expected->id);
        }
    }
}

// 200,000 user-defined and as many special tokens that all begin alike, over a text of a megabyte: work for each
// token, when one is added or at each byte of the text, would be 10^10 steps and more.
TEST(SpellingMatcher, ManySpellingsCostNoMoreThanAFew) {
    SentencePieceModel model;
    model.pieces = {{"<unk>", 0.0F, TokenKind::Unknown}, {"a", -1.0F, TokenKind::Normal}};
    model.unk_id = 0;
    model.add_dummy_prefix = false;
    constexpr int n = 200'000;
    for (int i = 0; i < n; ++i)
        model.pieces.push_back({fmt::format("<|tag\u2581{:06}|>", i), 0.0F, TokenKind::UserDefined});
    for (int i = 0; i < n; ++i) model.pieces.push_back({fmt::format("<|end {:06}|>", i), 0.0F, TokenKind::Control});
    const SentencePieceTokenizer tokenizer(std::move(model));
    std::string text;
    std::vector<TokenId> expected;
    for (int i = 0; i < 20'000; ++i) {
        text += fmt::format("<|tag {:06}|><|end {:06}|>", i * 7, i * 9);
        expected.insert(expected.end(), {2 + i * 7, 2 + n + i * 9});
    }
    EXPECT_EQ(tokenizer.encode(text, SpecialTokens::Parse), expected);
    // Beginnings of a token that no token follows.
    const std::string nearly(std::size_t{1} << 20, '<');
    EXPECT_EQ(tokenizer.encode(nearly + "a", SpecialTokens::Parse), (std::vector<TokenId>{0, 1}));
}

}  // namespace
}  // namespace slipstream
