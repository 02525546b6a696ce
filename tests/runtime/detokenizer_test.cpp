// Ids to text as it comes: whole characters only, the leading space, U+FFFD for what never becomes a character.
#include <random>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"
#include "runtime/text/utf8.h"

namespace slipstream {
namespace {

using Start = StreamingDetokenizer::Start;

/// <unk>, <s>, the 256 bytes from id 2 on, and a few pieces.
enum Ids : TokenId { Unknown = 0, Bos = 1, FirstByte = 2, SpaceA = 258, A, Space, SmileHalf };

SentencePieceTokenizer make(bool prefix) {
    SentencePieceModel model;
    model.unk_id = 0;
    model.add_dummy_prefix = prefix;
    model.pieces = {{"<unk>", 0, TokenKind::Unknown}, {"<s>", 0, TokenKind::Control}};
    for (int byte = 0; byte < 256; ++byte)
        model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, TokenKind::Byte});
    for (const char* text : {"\u2581a", "a", "\u2581", "x\xf0\x9f"})
        model.pieces.push_back({text, 0, TokenKind::Normal});
    return SentencePieceTokenizer(std::move(model));
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, Start start) {
    StreamingDetokenizer detokenizer(tokenizer, start);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    text += detokenizer.finish();
    return text;
}

std::vector<TokenId> byte_ids(std::string_view bytes) {
    std::vector<TokenId> ids;
    for (const char c : bytes) ids.push_back(FirstByte + static_cast<unsigned char>(c));
    return ids;
}

TEST(Detokenizer, DropsTheLeadingSpaceOfATextOnly) {
    const SentencePieceTokenizer tokenizer = make(true);
    EXPECT_EQ(stream(tokenizer, {SpaceA, SpaceA}, Start::OfText), "a a");
    EXPECT_EQ(stream(tokenizer, {Bos, SpaceA, SpaceA}, Start::OfText), "a a");
    EXPECT_EQ(stream(tokenizer, {SpaceA, SpaceA}, Start::Continued), " a a");
    EXPECT_EQ(stream(tokenizer, {Space, SpaceA}, Start::OfText), " a");  // one space, not all
    EXPECT_EQ(stream(tokenizer, {A, SpaceA}, Start::OfText), "a a");
    EXPECT_EQ(stream(tokenizer, byte_ids(" "), Start::OfText), " ");  // the encoder's space is never a byte
    EXPECT_EQ(stream(tokenizer, {Unknown}, Start::OfText), " \u2047 ");
    EXPECT_EQ(stream(make(false), {SpaceA}, Start::OfText), " a");
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{Bos, SpaceA, Bos, SpaceA}), "a a");
}

TEST(Detokenizer, SpellsOutTheMarksOfAnswersThatAreControlTokens) {
    SentencePieceModel model;
    model.unk_id = 0;
    model.pieces = {{"<unk>", 0, TokenKind::Unknown},        {"<s>", 0, TokenKind::Control},
                    {"[TOOL_CALLS]", 0, TokenKind::Control}, {"[INST]", 0, TokenKind::Control},
                    {"<think>", 0, TokenKind::UserDefined},  {"a", 0, TokenKind::Normal},
                    {"x\xf0\x9f", 0, TokenKind::Normal}};
    const SentencePieceTokenizer tokenizer(std::move(model));
    EXPECT_EQ(stream(tokenizer, {1, 5, 2, 3, 4, 5}, Start::Continued), "a[TOOL_CALLS]<think>a");
    EXPECT_EQ(stream(tokenizer, {6, 2, 5}, Start::Continued), "x\ufffd[TOOL_CALLS]a");
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 5}), "a");
}

TEST(Detokenizer, NeverShowsHalfACharacter) {
    const SentencePieceTokenizer tokenizer = make(true);
    StreamingDetokenizer detokenizer(tokenizer, Start::Continued);
    EXPECT_EQ(detokenizer.push(SmileHalf), "x");
    EXPECT_EQ(detokenizer.push(FirstByte + 0x98), "");
    EXPECT_EQ(detokenizer.push(FirstByte + 0x80), "\xf0\x9f\x98\x80");
    EXPECT_EQ(detokenizer.push(A), "a");
    EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, BrokenBytesBecomeOneReplacementASubpart) {
    const SentencePieceTokenizer tokenizer = make(true);
    const auto shown = [&](std::string_view bytes) { return stream(tokenizer, byte_ids(bytes), Start::Continued); };
    const std::string r = "\ufffd";
    // The Unicode Standard, section 3.9, tables 3-8 to 3-11.
    EXPECT_EQ(shown("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(shown("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(shown("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), r + r + r + r + r + "A" + r + r + "B");
    EXPECT_EQ(shown("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
    EXPECT_EQ(shown("a\xe2\x96"), "a" + r);  // the end of the text
    EXPECT_EQ(shown("\xe2\x96\x81"), "\u2581");
}

TEST(Detokenizer, ShowsValidTextUnchangedHoweverItIsCut) {
    const SentencePieceTokenizer tokenizer = make(true);
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        std::string text;
        for (int i = 0; i < 20; ++i) {
            const char* const characters[] = {"a", "é", "한", "🦙", "\u07ff", "\u0800", "\uffff", "\U0010ffff", "\n"};
            text += characters[random() % std::size(characters)];
        }
        EXPECT_EQ(stream(tokenizer, byte_ids(text), Start::OfText), text);
        std::string bytes(1 + random() % 12, ' ');
        for (char& c : bytes) c = static_cast<char>(random());
        const std::string shown = stream(tokenizer, byte_ids(bytes), Start::OfText);
        for (std::string_view rest = shown; !rest.empty();) {  // whatever came in, what comes out is UTF-8
            const Utf8Step step = next_utf8(rest);
            ASSERT_EQ(step.kind, Utf8Kind::Complete);
            rest.remove_prefix(step.length);
        }
    }
}

}  // namespace
}  // namespace slipstream
