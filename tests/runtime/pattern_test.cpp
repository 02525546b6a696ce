// Patterns: what the dialects mean in PCRE2's words, what is refused by name, and how matches follow one another.
#include "runtime/text/tokenizer/pattern_dialect.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/text_pattern.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, const std::string& text,
                                 PatternDialect dialect = PatternDialect::Oniguruma) {
    const TextPattern compiled(to_pcre2(pattern, dialect, "test"), "test");
    TextPattern::Search search(compiled);
    search.begin(text);
    std::vector<std::string> result;
    while (const auto match = search.next()) result.push_back(text.substr(match->begin, match->end - match->begin));
    return result;
}

TEST(PatternDialect, WhiteSpaceIsUnicodes) {
    EXPECT_THAT(matches("\\s", "a\t\u0085\u00a0\u1680\u180e\u2003\u200b\u2028\u3000z"),
                ElementsAre("\t", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u3000"));
    EXPECT_THAT(matches("[\\s,]+", "a ,\u180e\n,"), ElementsAre(" ,", "\n,"));
    EXPECT_THAT(matches("\\S+", "ab \u180ec"), ElementsAre("ab", "\u180ec"));
    EXPECT_THAT(matches("[^\\S\\n]+", "a \n\tb"), ElementsAre(" ", "\t"));
    EXPECT_THAT(matches("\\v|\\x0c", "a\nb\vc\f"), ElementsAre("\v", "\f"));
}

TEST(PatternDialect, WordsDigitsAndCategories) {
    EXPECT_THAT(matches("\\w+", "a1_\u0301\u203f-\u00b2 \u2167"), ElementsAre("a1_\u0301\u203f", "\u00b2", "\u2167"));
    EXPECT_THAT(matches("\\w+", "a\u00b2b\u200dc", PatternDialect::Rust), ElementsAre("a", "b\u200dc"));
    EXPECT_THAT(matches("\\W", "a-b"), ElementsAre("-"));
    EXPECT_THAT(matches("\\d|\\D{2}", "1ab\u0663"), ElementsAre("1", "ab", "\u0663"));
    EXPECT_THAT(matches("[\\d\\D]", "1a"), ElementsAre("1", "a"));
    EXPECT_THAT(matches("\\p{Lu}|\\P{L}|\\p{^N}", "aB1"), ElementsAre("a", "B", "1"));
    EXPECT_THAT(matches("\\p{Han}+", "ab\u4f60\u3005\u3002c"),
                ElementsAre("\u4f60\u3005"));  // the script, no extensions
}

TEST(PatternDialect, ClassesInClassesAreTheirUnion) {
    EXPECT_THAT(matches("[^(\\s|[.,!?])]+", "ab.c (d"), ElementsAre("ab", "c", "d"));
    EXPECT_THAT(matches("[a-c[x-z]\\-\\]]+", "abx-]d"), ElementsAre("abx-]"));
    EXPECT_THAT(matches("[+--]+", "a+,-b"), ElementsAre("+,-"));
    EXPECT_THAT(matches("[a-]", "-a"), ElementsAre("-", "a"));
}

TEST(PatternDialect, LinesAndIntervalsDiffer) {
    EXPECT_THAT(matches("\\s+$", "a \nb  "), ElementsAre(" ", "  "));
    EXPECT_THAT(matches("\\s+$", "a \nb  ", PatternDialect::Rust), ElementsAre("  "));
    EXPECT_THAT(matches("^.", "a\nb"), ElementsAre("a", "b"));
    EXPECT_THAT(matches("^.", "a\nb", PatternDialect::Rust), ElementsAre("a"));
    EXPECT_THAT(matches("[0-9]{1,3}+", "12345"), ElementsAre("12345"));                            // repeated
    EXPECT_THAT(matches("[0-9]{1,3}+", "12345", PatternDialect::Rust), ElementsAre("123", "45"));  // possessive
    EXPECT_THAT(matches("a{,2}b|{c}", "aaab{c}"), ElementsAre("aab", "{c}"));
    EXPECT_THAT(matches("a++b?+", "aab"), ElementsAre("aab"));
    EXPECT_THAT(matches("(?:ab){2}+", "abababab"), ElementsAre("abababab"));
}

TEST(PatternDialect, GroupsAndCases) {
    EXPECT_THAT(matches("(?i:'s|'ll)", "'S'Ll'\u017f't"), ElementsAre("'S", "'Ll", "'\u017f"));
    EXPECT_THAT(matches("a(?=b)|(?<!a)c|(?>d|de)", "abacc de"), ElementsAre("a", "c", "d"));
    EXPECT_THAT(matches("(a)(b)", "ab"), ElementsAre("ab"));
    EXPECT_THAT(matches("(?i)a", "A"), ElementsAre("A"));
    EXPECT_THAT(matches("\\u00e9|\\x{1f600}|\\x41|\\.", "\u00e9\U0001f600A."),
                ElementsAre("\u00e9", "\U0001f600", "A", "."));
}

TEST(PatternDialect, RefusesByNameWhatItDoesNotRead) {
    const auto refused = [](const std::string& pattern, PatternDialect dialect = PatternDialect::Oniguruma) {
        return error_text<Unsupported>([&] { (void)to_pcre2(pattern, dialect, "some.json"); });
    };
    EXPECT_THAT(refused("a\\b"), HasSubstr("'\\b'"));
    EXPECT_THAT(refused("(a)\\1"), HasSubstr("'\\1'"));
    EXPECT_THAT(refused("\\h"), HasSubstr("'\\h'"));
    EXPECT_THAT(refused("(?<x>a)"), HasSubstr("'(?<x'"));
    EXPECT_THAT(refused("(?m:a)"), HasSubstr("'(?m:'"));
    EXPECT_THAT(refused("(*UTF)a"), HasSubstr("'(*"));
    EXPECT_THAT(refused("[a&&b]"), HasSubstr("'&&'"));
    EXPECT_THAT(refused("[[:alpha:]]"), HasSubstr("'[:'"));
    EXPECT_THAT(refused("[a[^b]]"), HasSubstr("'[^' in a class"));
    EXPECT_THAT(refused("[]"), HasSubstr("empty class"));
    EXPECT_THAT(refused("[b-a]"), HasSubstr("range"));
    EXPECT_THAT(refused("[a-\\d]"), HasSubstr("range"));
    EXPECT_THAT(refused("[a"), HasSubstr("not closed"));
    EXPECT_THAT(refused("(a"), HasSubstr("not closed"));
    EXPECT_THAT(refused("a)"), HasSubstr("too many"));
    EXPECT_THAT(refused("*a"), HasSubstr("repetition of nothing"));
    EXPECT_THAT(refused("a**"), HasSubstr("repetition of a repetition"));
    EXPECT_THAT(refused("a{2}?"), HasSubstr("'{n}?'"));
    EXPECT_THAT(refused("\\pL"), HasSubstr("without braces"));
    EXPECT_THAT(refused("\\p{x=y}"), HasSubstr("'x=y'"));
    EXPECT_THAT(refused("\\x{110000}"), HasSubstr("not a character"));
    EXPECT_THAT(refused("\\u12"), HasSubstr("cut short"));
    EXPECT_THAT(refused("\\"), HasSubstr("some.json"));
    EXPECT_THAT(refused("\xff"), HasSubstr("UTF-8"));
    EXPECT_THAT(refused("[a--b]", PatternDialect::Rust), HasSubstr("set operations"));
    EXPECT_THAT(refused(std::string(200, '(')), HasSubstr("too deeply"));
    EXPECT_THAT(refused(std::string(1 << 17, 'a')), HasSubstr("bytes"));
    EXPECT_THAT(error_text<Unsupported>([] { (void)matches("\\p{Klingon}", "a"); }), HasSubstr("Klingon"));
}

TEST(PatternDialect, ALiteralIsItself) {
    const TextPattern pattern(literal_pcre2("a.(\u00e9"), "test");
    TextPattern::Search search(pattern);
    search.begin("axa.(\u00e9");
    const auto match = search.next();
    ASSERT_TRUE(match.has_value());
    EXPECT_EQ(match->begin, 2U);
    EXPECT_FALSE(search.next().has_value());
}

TEST(TextPattern, EmptyMatchesStandBetweenCharacters) {
    const TextPattern pattern("(?=[0-9])|b", "test");
    TextPattern::Search search(pattern);
    const std::string text =
        "a12\u00e9"
        "3b";
    search.begin(text);
    std::vector<std::pair<std::size_t, std::size_t>> places;
    while (const auto match = search.next()) places.emplace_back(match->begin, match->end);
    using Place = std::pair<std::size_t, std::size_t>;
    EXPECT_THAT(places, ElementsAre(Place(1, 1), Place(2, 2), Place(5, 5), Place(6, 7)));
    search.begin("");
    EXPECT_FALSE(search.next().has_value());
}

TEST(TextPattern, GivesUpOnPatternsThatTakeForEver) {
    const TextPattern pattern("(?:a|a)*(?:a|a)*(?:a|a)*[bc]", "some.json");
    TextPattern::Search search(pattern);
    const std::string text(4000, 'a');
    search.begin(text);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(error_text<RequestError>([&] { (void)search.next(); }), HasSubstr("takes too long"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(TextPattern, DeepBacktrackingGetsALargerStack) {
    const TextPattern pattern("(?:a(?=.)|b)+c?", "test");
    TextPattern::Search search(pattern);
    const std::string text(300'000, 'a');
    search.begin(text);
    const auto match = search.next();
    ASSERT_TRUE(match.has_value());
    EXPECT_EQ(match->end, text.size() - 1);
}

TEST(NewerCharacters, AreReplacedByOlderOnesOfTheirKind) {
    const std::string text = "a\U00010d4a\U00010d50\u0897\U000323af1";
    EXPECT_TRUE(has_newer_characters(text));
    const std::string older = with_older_characters(text);
    EXPECT_EQ(older.size(), text.size());
    EXPECT_FALSE(has_newer_characters(older));
    EXPECT_THAT(matches("\\p{Lo}|\\p{Lu}|\\p{Mn}|\\p{Nd}", older),
                ElementsAre("\U00010000", "\U00010400", "\u0900", "\U00020000", "1"));
    EXPECT_FALSE(has_newer_characters("plain, \u00e9\u4e00\U0001f600"));
    EXPECT_EQ(with_older_characters("plain"), "plain");
}

TEST(TextPattern, OneBudgetForAllSearchesOfATextAndOfTheNext) {
    // Each match reads all letters behind it to the end, in vain, before it takes one letter.
    const TextPattern compiled(to_pcre2("a(?:(?:a|b)*x)?|b", PatternDialect::Oniguruma, "test"), "test");
    std::string text(20000, 'a');
    TextPattern::Search search(compiled);
    search.begin(text);
    const auto all = [&] {
        while (search.next()) {
        }
    };
    EXPECT_THROW(all(), RequestError);
    TextPattern::Search others(compiled);
    text.resize(60);  // little enough each time, and never too much
    for (int i = 0; i < 5000; ++i) {
        others.begin(text);
        while (others.next()) {
        }
    }
}

}  // namespace
}  // namespace slipstream
