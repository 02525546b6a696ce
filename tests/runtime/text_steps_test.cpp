// What text passes before it meets a model: added tokens, normalisers, pre-tokenizers.
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/utf8.h"
#include "tests/support/byte_alphabet.h"
#include "tests/support/error_text.h"
#include "tests/support/random_texts.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string utf8(const std::u32string& text) {
    std::string result;
    for (const char32_t point : text) append_utf8(point, result);
    return result;
}

// --- Unicode forms ---

std::string by_utf8proc(const std::string& text, int options) {
    utf8proc_uint8_t* result = nullptr;
    const auto length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
    EXPECT_GE(length, 0);
    std::string copy(reinterpret_cast<const char*>(result), static_cast<std::size_t>(length));
    std::free(result);
    return copy;
}

TEST(TextNormalizer, FormsRunByRunAreThoseOfTheWholeText) {
    std::mt19937 random(5);
    std::vector<std::string> texts;
    for (const std::u32string& text : random_texts(3000)) texts.push_back(utf8(text));
    // Characters that a form changes, close together with those that the quick check lets pass.
    const std::u32string mixed =
        U"aeo \u00e9\u0301\u0323\u0345\u1100\u1161\u11a8\uac00\u304b\u3099\u30ab\u212b\u2126\u1e9b"
        U"\u0439\u0306\u0438\u4e00\uf900\uff76\uff9e\u2019\u037e\u0387\u1d15e\u0390\u03b9\u0308";
    for (int i = 0; i < 3000; ++i) {
        std::u32string text;
        for (int k = 0; k < 12; ++k) text += mixed[random() % mixed.size()];
        texts.push_back(utf8(text));
    }
    for (const std::string& text : texts) {
        EXPECT_EQ(to_unicode_form(text, UnicodeForm::Nfc), by_utf8proc(text, UTF8PROC_COMPOSE)) << text;
        EXPECT_EQ(to_unicode_form(text, UnicodeForm::Nfd), by_utf8proc(text, UTF8PROC_DECOMPOSE)) << text;
        EXPECT_EQ(to_unicode_form(text, UnicodeForm::Nfkc), by_utf8proc(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT))
            << text;
        EXPECT_EQ(to_unicode_form(text, UnicodeForm::Nfkd), by_utf8proc(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT))
            << text;
    }
    EXPECT_EQ(to_unicode_form("e\u0301 \ufb01\u00b2 \u212b", UnicodeForm::Nfc), "\u00e9 \ufb01\u00b2 \u00c5");
    EXPECT_EQ(to_unicode_form("e\u0301 \ufb01\u00b2 \u212b", UnicodeForm::Nfkc), "\u00e9 fi2 \u00c5");
}

template <typename... Steps>
TextNormalizer normalizer(Steps... steps) {
    std::vector<NormalizerStep> list;
    (list.emplace_back(std::move(steps)), ...);
    return TextNormalizer(std::move(list));
}

std::string normalised(const TextNormalizer& normalizer, std::string_view text, PieceStart start) {
    return normalizer.normalise(text, SaidBytes(), start).bytes;
}

// The normalised text, with the bytes that come of said ones in brackets.
std::string marked(const TextNormalizer& normalizer, std::string_view text, const std::vector<TextSpan>& said) {
    const MarkedText result = normalizer.normalise(text, SaidBytes(said), PieceStart::OfText);
    std::string shown;
    std::size_t done = 0;
    for (const TextSpan& span : result.said) {
        shown += result.bytes.substr(done, span.begin - done) + '[';
        shown += result.bytes.substr(span.begin, span.end - span.begin) + ']';
        done = span.end;
    }
    return shown += result.bytes.substr(done);
}

TEST(TextNormalizer, StepsFollowOneAnother) {
    const TextNormalizer llama = normalizer(PrependStep{"\u2581"}, ReplaceStep{std::string(" "), "\u2581"});
    EXPECT_EQ(normalised(llama, "a b", PieceStart::OfText), "\u2581a\u2581b");
    EXPECT_EQ(normalised(llama, "a b", PieceStart::Inside), "a\u2581b");
    EXPECT_EQ(normalised(llama, "", PieceStart::OfText), "");
    const TextNormalizer tidy =
        normalizer(LowercaseStep{}, StripStep{StripStep::Ends::Both},
                   ReplaceStep{TextPattern(to_pcre2(" {2,}", PatternDialect::Oniguruma, "t"), "t"), " "});
    EXPECT_EQ(normalised(tidy, " \u3000\u00c9A   \u0130\u03a3 \t", PieceStart::OfText), "\u00e9a i\u0307\u03c3");
    EXPECT_EQ(normalised(normalizer(StripStep{StripStep::Ends::Left}), " a ", PieceStart::OfText), "a ");
    EXPECT_EQ(normalised(normalizer(StripStep{StripStep::Ends::Right}), " a \u2003", PieceStart::OfText), " a");
    EXPECT_EQ(normalised(normalizer(LowercaseStep{}), "\U00010d50\ua7dc", PieceStart::OfText), "\U00010d70\u019b");
    EXPECT_EQ(normalised(TextNormalizer(), " \u00c9 ", PieceStart::OfText), " \u00c9 ");
}

TEST(TextNormalizer, RefusesRulesThatMakeTextGrowWithoutEnd) {
    std::vector<NormalizerStep> steps;
    for (int i = 0; i < 40; ++i) steps.emplace_back(ReplaceStep{std::string("a"), "aa"});
    const TextNormalizer doubling(std::move(steps));
    EXPECT_THAT(error_text<RequestError>([&] { (void)normalised(doubling, "a", PieceStart::OfText); }),
                HasSubstr("are not sensible"));
}

// --- Pre-tokenizers ---

class Words final : public WordSink {
public:
    void on_word(std::string_view word) override { list.emplace_back(word); }
    std::vector<std::string> list;
};

template <typename... Steps>
std::vector<std::string> cut(const std::string& text, PieceStart start, Steps... steps) {
    std::vector<PreTokenizerStep> list;
    (list.emplace_back(std::move(steps)), ...);
    const PreTokenizer pre_tokenizer(std::move(list));
    PreTokenizer::Run run(pre_tokenizer);
    Words sink;
    run.words(text, start, sink);
    return sink.list;
}

SplitStep split(const std::string& pattern, SplitBehavior behavior, SplitMatches matches = SplitMatches::Delimiters) {
    return {TextPattern(to_pcre2(pattern, PatternDialect::Oniguruma, "test"), "test"), behavior, matches};
}

TEST(TextNormalizer, CarriesTheMarksOfWhatWasSaid) {
    const TextNormalizer nfkc = normalizer(UnicodeForm::Nfkc);
    EXPECT_EQ(marked(nfkc, "<|\uff41|>", {{2, 5}}), "<|[a]|>");
    EXPECT_EQ(marked(nfkc, "\u4f60\uff1c\u597d", {{3, 6}}), "\u4f60[<]\u597d");     // within a run beyond ASCII
    EXPECT_EQ(marked(nfkc, ">\u00e9\uff1c", {{1, 3}}), ">[\u00e9]<");               // the run takes the ">" with it
    EXPECT_EQ(marked(nfkc, "a\u0301b", {{1, 3}}), "[\u00e1]b");                     // a mark that composes
    EXPECT_EQ(marked(nfkc, "\u1100\u1161\u11a8x\ufb01", {{6, 9}}), "[\uac01]xfi");  // starters that compose
    EXPECT_EQ(marked(normalizer(UnicodeForm::Nfd), "\u00e9\u00e9", {{0, 2}}), "[e\u0301]e\u0301");
    EXPECT_EQ(marked(normalizer(LowercaseStep{}), "A\u0130A\u0130", {{3, 4}}), "ai\u0307[a]i\u0307");
    EXPECT_EQ(marked(normalizer(PrependStep{"\u2581"}), "ab", {{1, 2}}), "\u2581a[b]");
    EXPECT_EQ(marked(normalizer(PrependStep{"_"}), "ab", {{0, 1}}), "[_a]b");
    EXPECT_EQ(marked(normalizer(StripStep{}), "  ab  ", {{3, 5}}), "a[b]");
    EXPECT_EQ(marked(normalizer(ReplaceStep{std::string("--"), "<"}), "a--b--", {{1, 2}, {4, 6}}), "a[<]b[<]");
    EXPECT_EQ(marked(normalizer(ReplaceStep{std::string("-"), ""}), "a-b", {{1, 2}}), "ab");
    EXPECT_EQ(marked(TextNormalizer(), "abc", {{0, 1}, {2, 3}}), "[a]b[c]");
}

TEST(PreTokenizer, JoinsSegmentsAsTheBehaviorSays) {
    // The example of the tokenizers package's documentation.
    const std::string text = "the-final--countdown";
    const auto at_dashes = [&](SplitBehavior behavior) { return cut(text, PieceStart::OfText, split("-", behavior)); };
    EXPECT_THAT(at_dashes(SplitBehavior::Removed), ElementsAre("the", "final", "countdown"));
    EXPECT_THAT(at_dashes(SplitBehavior::Isolated), ElementsAre("the", "-", "final", "-", "-", "countdown"));
    EXPECT_THAT(at_dashes(SplitBehavior::MergedWithPrevious), ElementsAre("the-", "final-", "-", "countdown"));
    EXPECT_THAT(at_dashes(SplitBehavior::MergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
    EXPECT_THAT(at_dashes(SplitBehavior::Contiguous), ElementsAre("the", "-", "final", "--", "countdown"));
    EXPECT_THAT(cut("--a-", PieceStart::OfText, split("-", SplitBehavior::MergedWithPrevious)),
                ElementsAre("-", "-", "a-"));
    EXPECT_THAT(cut("-a--", PieceStart::OfText, split("-", SplitBehavior::MergedWithNext)),
                ElementsAre("-a", "-", "-"));
    EXPECT_THAT(cut("a1 b", PieceStart::OfText, split("[a-z]", SplitBehavior::Removed, SplitMatches::Words)),
                ElementsAre("a", "b"));
    EXPECT_THAT(cut("", PieceStart::OfText, split("-", SplitBehavior::Isolated)), ElementsAre());
}

TEST(PreTokenizer, SpellsSpacesAndPutsThemInFront) {
    using Prepend = MetaspaceStep::Prepend;
    const auto metaspace = [](const std::string& text, PieceStart start, Prepend prepend) {
        return cut(text, start, MetaspaceStep{"\u2581", prepend}, split("\u2581", SplitBehavior::MergedWithNext));
    };
    EXPECT_THAT(metaspace("a b", PieceStart::OfText, Prepend::Always), ElementsAre("\u2581a", "\u2581b"));
    EXPECT_THAT(metaspace("a b", PieceStart::OfPart, Prepend::Always), ElementsAre("\u2581a", "\u2581b"));
    EXPECT_THAT(metaspace("a b", PieceStart::OfPart, Prepend::First), ElementsAre("a", "\u2581b"));
    EXPECT_THAT(metaspace("a b", PieceStart::OfText, Prepend::First), ElementsAre("\u2581a", "\u2581b"));
    EXPECT_THAT(metaspace("a b", PieceStart::Inside, Prepend::Always), ElementsAre("a", "\u2581b"));
    EXPECT_THAT(metaspace(" a  b", PieceStart::OfText, Prepend::Always), ElementsAre("\u2581a", "\u2581", "\u2581b"));
    EXPECT_THAT(metaspace("a", PieceStart::OfText, Prepend::Never), ElementsAre("a"));
    EXPECT_THAT(cut("ab", PieceStart::OfText, PrefixSpaceStep{}), ElementsAre(" ab"));
    EXPECT_THAT(cut(" ab", PieceStart::OfText, PrefixSpaceStep{}), ElementsAre(" ab"));
    EXPECT_THAT(cut("ab", PieceStart::Inside, PrefixSpaceStep{}), ElementsAre("ab"));
}

TEST(PreTokenizer, StepsBehindTheByteAlphabetSeeItsCharacters) {
    // U+00B2, in the alphabet the spelling of the byte B2, is a digit by Unicode.
    const std::string text = "a\u6cb2";  // E6 B2 B2
    EXPECT_THAT(cut(text, PieceStart::OfText, ByteAlphabetStep{}, split("\\p{N}", SplitBehavior::Isolated)),
                ElementsAre("a\xe6", "\xb2", "\xb2"));
    EXPECT_THAT(cut(text, PieceStart::OfText, ByteAlphabetStep{}), ElementsAre(text));
    EXPECT_THAT(cut("a b", PieceStart::OfText, ByteAlphabetStep{}, split("\u0120", SplitBehavior::MergedWithNext)),
                ElementsAre("a", " b"));
}

TEST(PreTokenizer, PatternsSeeNewerCharactersByTheirKind) {
    const std::string letters = "\U00010d50\U00010d51";  // capital letters of Unicode 16
    EXPECT_THAT(cut("1" + letters + "-", PieceStart::OfText, split("\\p{Lu}+", SplitBehavior::Isolated)),
                ElementsAre("1", letters, "-"));
    EXPECT_THAT(
        cut("a " + letters, PieceStart::OfText, MetaspaceStep{"\u2581"}, split("\\p{Lu}", SplitBehavior::Isolated)),
        ElementsAre("\u2581a\u2581", "\U00010d50", "\U00010d51"));
}

TEST(ByteAlphabet, SpellsEveryByteAndReadsItBack) {
    std::string all, spelt, back;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    append_in_alphabet(all, spelt);
    EXPECT_EQ(valid_utf8_prefix(spelt), spelt.size());
    EXPECT_TRUE(append_from_alphabet(spelt, back));
    EXPECT_EQ(back, all);
    EXPECT_EQ(byte_to_alphabet(' '), "\u0120");
    EXPECT_EQ(byte_to_alphabet('\n'), "\u010a");
    EXPECT_EQ(byte_to_alphabet(0xad), "\u0143");
    for (const char* other : {" ", "a b", "\u0144", "\u4e00", "\xc4", "\u00ad"}) {
        EXPECT_FALSE(append_from_alphabet(other, back)) << other;
        EXPECT_EQ(back, all);
    }
}

// --- Added tokens ---

std::string parts(const AddedTokenMatcher& matcher, const std::string& text,
                  SpecialTokens special = SpecialTokens::Parse, const std::vector<TextSpan>& said = {}) {
    std::string result;
    matcher.split(text, special, SaidBytes(said), [&](const AddedTokenMatcher::Part& part) {
        result += part.id ? fmt::format("<{}>", *part.id) : fmt::format("({})", part.text);
    });
    return result;
}

TEST(AddedTokens, TheLongestAtAPlaceWins) {
    const AddedTokenMatcher matcher(
        {{.content = "ab", .id = 1}, {.content = "abc", .id = 2}, {.content = "bcd", .id = 3}});
    EXPECT_EQ(parts(matcher, "xabcdab"), "(x)<2>(d)<1>");
    EXPECT_EQ(parts(matcher, ""), "");
    EXPECT_EQ(parts(matcher, "none"), "(none)");
    EXPECT_EQ(parts(AddedTokenMatcher(), "ab"), "(ab)");
}

TEST(AddedTokens, WhatWasSaidHasNoPartInTrustedOnes) {
    const AddedTokenMatcher matcher({{.content = "<s>", .id = 1, .special = true, .trusted_only = true},
                                     {.content = "<s>>", .id = 2, .special = true, .trusted_only = true},
                                     {.content = "ab", .id = 3}});
    const auto said = [&](const std::string& text, std::size_t begin, std::size_t end) {
        return parts(matcher, text, SpecialTokens::Parse, {{begin, end}});
    };
    EXPECT_EQ(said("<s>><s>", 0, 7), "(<s>><s>)");
    EXPECT_EQ(said("<s>>", 3, 4), "<1>(>)");  // the template's own, though a longer one was spelt
    EXPECT_EQ(said("<<s>", 0, 1), "(<)<1>");
    EXPECT_EQ(said("<s>a<s>", 2, 3), "(<s>a)<1>");
    EXPECT_EQ(said("abab<s>", 0, 4), "<3><3><1>");
}

TEST(AddedTokens, SpecialOnesAreTextUnlessAskedFor) {
    const AddedTokenMatcher matcher({{.content = "<s>", .id = 1, .special = true}, {.content = "s>", .id = 2}});
    EXPECT_EQ(parts(matcher, "a<s>s>"), "(a)<1><2>");
    // What a special token covers is not looked at again, as in the tokenizers package.
    EXPECT_EQ(parts(matcher, "a<s>s>", SpecialTokens::AsText), "(a<s>)<2>");
}

TEST(AddedTokens, TakeWhiteSpaceWithThem) {
    const AddedTokenMatcher matcher({{.content = "L", .id = 1, .lstrip = true},
                                     {.content = "R", .id = 2, .rstrip = true},
                                     {.content = "B", .id = 3, .lstrip = true, .rstrip = true}});
    EXPECT_EQ(parts(matcher, "a \t L b R \u3000c  B  d"), "(a)<1>( b )<2>(c)<3>(d)");
    EXPECT_EQ(parts(matcher, "R  L"), "<2><1>");
    EXPECT_EQ(parts(matcher, "  L  "), "<1>(  )");
}

TEST(AddedTokens, SingleWordsStandAlone) {
    const AddedTokenMatcher matcher({{.content = "ab", .id = 1, .single_word = true}});
    EXPECT_EQ(parts(matcher, "ab-ab abc \u00e9ab ab"), "<1>(-)<1>( abc \u00e9ab )<1>");
    EXPECT_EQ(parts(matcher, "ab_ 1ab \u200bab"), "(ab_ 1ab \u200b)<1>");
}

}  // namespace
}  // namespace slipstream
