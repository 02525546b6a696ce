// The .model parser and the encoder: ids against the original's (tests/golden/tokenizer, made with the sentencepiece
// package), every broken file answered by an error that names it.
#include "runtime/text/tokenizer/sentencepiece_model.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kFairy = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model";
constexpr std::string_view kShared = SLIPSTREAM_SOURCE_DIR "/../shared/data";

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string unhex(std::string_view hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    return bytes;
}

/// Lines "<text in hex>\t<ids>" against encode(); returns how many there were.
int compare_with_golden(const Tokenizer& tokenizer, const std::string& name) {
    std::ifstream file(SLIPSTREAM_GOLDEN_DIR "/tokenizer/" + name + ".txt");
    EXPECT_TRUE(file) << name;
    int n_lines = 0;
    for (std::string line; std::getline(file, line); ++n_lines) {
        const std::size_t tab = line.find('\t');
        const std::string text = unhex(line.substr(0, tab));
        std::istringstream ids(line.substr(tab + 1));
        const std::vector<TokenId> expected{std::istream_iterator<TokenId>(ids), {}};
        EXPECT_EQ(tokenizer.encode(text, SpecialTokens::AsText), expected) << name << ": " << text;
    }
    return n_lines;
}

SentencePieceModel fairy() {
    return parse_sentencepiece_model(content_of(kFairy), "fairy");
}

TEST(SentencePiece, EncodesAsTheOriginal) {
    const SentencePieceTokenizer tokenizer(fairy());
    EXPECT_EQ(compare_with_golden(tokenizer, "fairy"), 160);
}

TEST(SentencePiece, EncodesAsTheOriginalUnderEveryRule) {
    const auto replace_kind = [](SentencePieceModel& model, TokenKind from, TokenKind to, std::size_t step) {
        for (std::size_t id = 0; id < model.pieces.size(); id += step)
            if (model.pieces[id].kind == from) model.pieces[id].kind = to;
    };
    const auto add = [](SentencePieceModel& model, const std::string& text, float score, TokenKind kind) {
        for (SentencePiece& piece : model.pieces)
            if (piece.text == text) {
                piece.kind = kind;
                return;
            }
        model.pieces.push_back({text, score, kind});
    };
    const auto add_blanks = [&](SentencePieceModel& model) {
        for (const char* text :
             {"a b", " the", "x  y", "\n \n", "  ", "e ", "\u2581a ", "o\u2581n", "[A B]", " ", "b\u2581\u2581"})
            add(model, text, 0, TokenKind::UserDefined);
    };
    // The same changes as in tests/golden/tokenizer/make.py.
    const std::pair<std::string, std::function<void(SentencePieceModel&)>> variants[] = {
        {"no_bytes", [&](auto& model) { replace_kind(model, TokenKind::Byte, TokenKind::Normal, 1); }},
        {"unused", [&](auto& model) { replace_kind(model, TokenKind::Normal, TokenKind::Unused, 3); }},
        {"user_defined",
         [&](auto& model) {
             for (const char* text : {"ab", "abc", "\u2581a\u2581", "the", "\n\n", "你好", ".,"})
                 add(model, text, 0, TokenKind::UserDefined);
         }},
        {"across_words",
         [&](auto& model) {
             for (const char* text : {"e\u2581a", "n\u2581", "\u2581a\u2581b"}) add(model, text, 5, TokenKind::Normal);
         }},
        {"ties",
         [&](auto& model) {
             for (SentencePiece& piece : model.pieces)
                 if (piece.kind == TokenKind::Normal) piece.score = std::trunc(piece.score / 500);
         }},
        {"extra_whitespace", [](auto& model) { model.remove_extra_whitespaces = true; }},
        {"no_prefix", [](auto& model) { model.add_dummy_prefix = false; }},
        {"blanks", add_blanks},
        {"blanks_tidied",
         [&](auto& model) {
             add_blanks(model);
             model.remove_extra_whitespaces = true;
         }},
        {"blanks_unigram",
         [&](auto& model) {
             add_blanks(model);
             model.remove_extra_whitespaces = true;
             model.algorithm = SentencePieceModel::Algorithm::Unigram;
         }},
    };
    for (const auto& [name, change] : variants) {
        SentencePieceModel model = fairy();
        change(model);
        const SentencePieceTokenizer tokenizer(std::move(model));
        EXPECT_EQ(compare_with_golden(tokenizer, "variant_" + name), name.starts_with("blanks") ? 250 : 100) << name;
    }
}

TEST(SentencePiece, SpacesOfUserDefinedPiecesAreMarksInGgufFilesAndAddedTokens) {
    PlainVocabulary vocabulary;
    vocabulary.model = "llama";
    vocabulary.tokens = {"<unk>", "\u2581", "a", "b", "a b"};
    vocabulary.scores = {0, -1, -1, -1, 0};
    vocabulary.types = {2, 1, 1, 1, 4};
    vocabulary.unk_id = 0;
    vocabulary.add_space_prefix = false;
    SentencePieceModel model = sentencepiece_from_gguf(vocabulary);
    append_added_tokens({{.content = "b b", .id = 5}}, "tokenizer_config.json", model);
    const SentencePieceTokenizer tokenizer(std::move(model));
    EXPECT_EQ(tokenizer.encode("ba bb b a", SpecialTokens::AsText), (std::vector<TokenId>{3, 4, 5, 1, 2}));
}

TEST(SentencePiece, EncodesPublishedVocabulariesAsTheOriginal) {
    const std::pair<std::string, std::string> models[] = {{"llama2", "/tokenizers/llama2/tokenizer.model"},
                                                          {"stories260K", "/stories260K/hf/tokenizer.model"}};
    for (const auto& [name, place] : models) {
        const std::filesystem::path path = std::string(kShared) + place;
        if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
        const SentencePieceTokenizer tokenizer(parse_sentencepiece_model(content_of(path), name));
        EXPECT_EQ(compare_with_golden(tokenizer, name), 160);
    }
}

TEST(SentencePiece, KnowsTheBundledVocabulary) {
    const SentencePieceTokenizer tokenizer(fairy());
    EXPECT_EQ(tokenizer.kind(), "SentencePiece BPE");
    EXPECT_EQ(tokenizer.vocab_size(), 4096);
    EXPECT_EQ(tokenizer.bos_id(), 1);
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_TRUE(tokenizer.adds_space_prefix());
    EXPECT_THAT(tokenizer.end_tokens(), ElementsAre(2));
    EXPECT_EQ(tokenizer.token_kind(0), TokenKind::Unknown);
    EXPECT_EQ(tokenizer.token_kind(2), TokenKind::Control);
    EXPECT_EQ(tokenizer.token_kind(13), TokenKind::Byte);
    EXPECT_EQ(tokenizer.piece(13), "<0x0A>");
    EXPECT_EQ(tokenizer.token_bytes(13), "\n");
    EXPECT_EQ(tokenizer.token_bytes(2), "");
    EXPECT_EQ(tokenizer.token_bytes(0), " \u2047 ");
    EXPECT_EQ(tokenizer.piece(259), "\u2581t");
    EXPECT_EQ(tokenizer.token_bytes(259), " t");
    // A model's vocabulary may be padded beyond its tokenizer's.
    EXPECT_EQ(tokenizer.token_kind(4096), TokenKind::Unused);
    EXPECT_EQ(tokenizer.token_bytes(4096), "");
    EXPECT_EQ(tokenizer.piece(-1), "");
}

TEST(SentencePiece, ParsesSpecialTokensOnlyWhenAsked) {
    const SentencePieceTokenizer tokenizer(fairy());
    const auto as_text = tokenizer.encode("Hi</s>there", SpecialTokens::AsText);
    EXPECT_THAT(as_text, testing::Not(testing::Contains(2)));
    EXPECT_EQ(tokenizer.decode(as_text), "Hi</s>there");
    // Each part is a text of its own.
    std::vector<TokenId> expected = tokenizer.encode("Hi", SpecialTokens::AsText);
    expected.push_back(2);
    for (const TokenId id : tokenizer.encode("there", SpecialTokens::AsText)) expected.push_back(id);
    EXPECT_EQ(tokenizer.encode("Hi</s>there", SpecialTokens::Parse), expected);
    EXPECT_THAT(tokenizer.encode("<s></s><s>", SpecialTokens::Parse), ElementsAre(1, 2, 1));
    EXPECT_THAT(tokenizer.encode("", SpecialTokens::Parse), ElementsAre());
}

// mistral-common's prompts as it spells them itself (its tokenizers v2 and v3: [INST] is a token): what stands between
// control tokens is encoded as a text of its own, whose leading blank the spelling shows.
TEST(SentencePiece, ABlankBehindAControlTokenIsNotDoubled) {
    SentencePieceModel model = fairy();
    for (const char* mark : {"[INST]", "[/INST]"})
        model.pieces.push_back({.text = mark, .score = 0.0F, .kind = TokenKind::Control});
    const SentencePieceTokenizer tokenizer(std::move(model));
    const TokenId begin = 4096;
    const TokenId end = 4097;
    std::vector<TokenId> expected{1};
    const auto add = [&](TokenId before, std::string_view content) {
        expected.push_back(before);
        for (const TokenId id : tokenizer.encode(content, SpecialTokens::AsText)) expected.push_back(id);
    };
    add(begin, "Hi there");
    add(end, "Hello!");
    expected.push_back(2);
    add(begin, "  two blanks");
    add(end, "");
    EXPECT_EQ(tokenizer.encode("<s>[INST] Hi there[/INST] Hello!</s>[INST]   two blanks[/INST]", SpecialTokens::Parse),
              expected);
    EXPECT_EQ(tokenizer.encode("<s>[INST]Hi there[/INST]Hello!</s>[INST]   two blanks[/INST]", SpecialTokens::Parse),
              expected)
        << "where no blank is spelt, there is one all the same";
}

TEST(SentencePiece, KeepsBytesThatAreNotUtf8) {
    const SentencePieceTokenizer tokenizer(fairy());
    std::string bytes;
    for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i * 167 >> (i / 256));
    for (const std::string& text :
         {bytes, std::string("\xff"), std::string("a\xe2\x96"), std::string("\xed\xa0\x80 \xc0\x80")})
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::AsText)), text);
    EXPECT_EQ(tokenizer.encode("\xff", SpecialTokens::AsText).back(), 3 + 0xff);
}

TEST(SentencePiece, ALongWordTakesNoQuadraticTime) {
    const SentencePieceTokenizer tokenizer(fairy());
    std::string word;
    while (word.size() < 1000000) word += "thewandering";  // a quadratic method needs minutes
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(word, SpecialTokens::AsText);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    EXPECT_EQ(tokenizer.decode(ids), word);
}

TEST(SentencePiece, ReadsBytePieces) {
    EXPECT_EQ(byte_of_piece("<0x00>"), 0);
    EXPECT_EQ(byte_of_piece("<0xAF>"), 0xaf);
    for (const char* wrong : {"<0xaf>", "<0xA>", "<0xAG>", "0xAF", "<0xAFF>", "[0xAF]", ""})
        EXPECT_FALSE(byte_of_piece(wrong).has_value()) << wrong;
}

// --- Files made by hand: the wire format in a few lines. ---

std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
    return varint(field << 3) + varint(value);
}
std::string bytes(unsigned field, const std::string& value) {
    return varint(field << 3 | 2) + varint(value.size()) + value;
}
std::string real(unsigned field, float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    std::string result = varint(field << 3 | 5);
    for (int shift = 0; shift < 32; shift += 8) result += static_cast<char>(bits >> shift);
    return result;
}
std::string piece(const std::string& text, float score, int type) {
    return bytes(1, bytes(1, text) + real(2, score) + number(3, static_cast<std::uint64_t>(type)));
}

const std::string kPieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -1, 1) +
                            piece("a", -2, 1) + piece("\u2581a", -3, 1);
const std::string kBpe = bytes(2, number(3, 2));
const std::string kIdentity = bytes(3, bytes(1, "identity") + number(4, 0));

std::string refusal(const std::string& file) {
    try {
        (void)parse_sentencepiece_model(file, "some.model");
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("some.model"));
        EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
        return error.what();
    }
    return "accepted";
}

TEST(SentencePieceFile, ReadsAModelMadeByHand) {
    const auto model = parse_sentencepiece_model(kPieces + kBpe + kIdentity, "some.model");
    EXPECT_EQ(model.pieces.size(), 6U);
    EXPECT_EQ(model.pieces[5].text, "\u2581a");
    EXPECT_EQ(model.pieces[5].score, -3);
    EXPECT_EQ(model.unk_id, 0);
    EXPECT_EQ(model.bos_id, 1);  // the schema's default
    EXPECT_THAT(model.end_tokens, ElementsAre(2));
    EXPECT_FALSE(model.remove_extra_whitespaces);
    const SentencePieceTokenizer tokenizer(model);
    EXPECT_THAT(tokenizer.encode("a a b bb", SpecialTokens::AsText), ElementsAre(5, 5, 3, 0, 3, 0));
}

TEST(SentencePieceFile, FollowsTheSchemasDefaults) {
    const auto model = parse_sentencepiece_model(kPieces + kBpe, "some.model");
    EXPECT_TRUE(model.remove_extra_whitespaces);
    EXPECT_TRUE(model.add_dummy_prefix);
    const std::string no_ids = bytes(2, number(3, 2) + number(41, ~std::uint64_t{0}) + number(42, ~std::uint64_t{0}));
    const auto without = parse_sentencepiece_model(kPieces + no_ids, "some.model");
    EXPECT_FALSE(without.bos_id.has_value());
    EXPECT_FALSE(without.adds_bos);
    EXPECT_THAT(without.end_tokens, ElementsAre());
    const auto unknown_fields = number(999, 5) + varint(77 << 3 | 1) + std::string(8, 'x') + bytes(10, "?");
    EXPECT_EQ(parse_sentencepiece_model(unknown_fields + kPieces + kBpe, "some.model").pieces.size(), 6U);
}

TEST(SentencePieceFile, ReadsAUnigramModel) {
    // "ab" as a whole is worse than "a" and "b"; "abc" is better than its parts.
    const std::string pieces =
        kPieces + piece("b", -1.5F, 1) + piece("ab", -9, 1) + piece("abc", -4, 1) + piece("c", -3, 1);
    for (const std::string& type : {std::string(), bytes(2, number(3, 1))}) {  // unigram is the schema's default
        std::string file = pieces;
        file.append(type).append(kIdentity);
        const SentencePieceTokenizer tokenizer(parse_sentencepiece_model(file, "some.model"));
        EXPECT_EQ(tokenizer.kind(), "SentencePiece unigram");
        EXPECT_THAT(tokenizer.encode("ab", SpecialTokens::AsText), ElementsAre(5, 6));
        EXPECT_THAT(tokenizer.encode("babc", SpecialTokens::AsText), ElementsAre(3, 6, 8));
        EXPECT_THAT(tokenizer.encode("axya", SpecialTokens::AsText), ElementsAre(5, 0, 4));
        EXPECT_EQ(tokenizer.decode(tokenizer.encode("abc ab c", SpecialTokens::AsText)), "abc ab c");
    }
}

TEST(SentencePieceFile, RefusesOtherKindsByName) {
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 3))), HasSubstr("word"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 4))), HasSubstr("char"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 77))), HasSubstr("77"));
    EXPECT_THAT(refusal(kPieces + kBpe + bytes(5, bytes(2, "rules"))), HasSubstr("denormaliser"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 2) + number(24, 1))), HasSubstr("suffix"));
    EXPECT_THROW((void)parse_sentencepiece_model(kPieces + bytes(2, number(3, 3)), "x"), Unsupported);
}

TEST(SentencePieceFile, RefusesBrokenFiles) {
    EXPECT_THAT(refusal(""), HasSubstr("no tokens"));
    EXPECT_THAT(refusal(kBpe), HasSubstr("no tokens"));
    EXPECT_THAT(refusal("\x0a\xff\xff\xff\xff\x7f"), HasSubstr("cut short"));
    EXPECT_THAT(refusal(std::string(12, '\xff')), HasSubstr("ten bytes"));
    EXPECT_THAT(refusal(std::string("\x00\x01", 2)), HasSubstr("field number 0"));
    EXPECT_THAT(refusal("\x0b"), HasSubstr("wire type 3"));
    EXPECT_THAT(refusal(number(1, 5)), HasSubstr("wire type 0, not 2"));
    EXPECT_THAT(refusal(bytes(1, number(2, 5))), HasSubstr("wire type 0, not 5"));
    EXPECT_THAT(refusal(kPieces + bytes(2, bytes(3, "2"))), HasSubstr("wire type 2, not 0"));
    EXPECT_THAT(refusal(piece("a", 0, 7)), HasSubstr("type 7"));
    EXPECT_THAT(refusal(kPieces + kBpe + bytes(3, bytes(2, "rules"))), HasSubstr("too short"));
    EXPECT_THAT(refusal(kPieces + kBpe + bytes(3, bytes(2, std::string("\xff\xff\0\0rules", 9)))), HasSubstr("65535"));
    EXPECT_THAT(refusal(kPieces + kBpe + piece("", 0, 1)), HasSubstr("empty"));
    EXPECT_THAT(refusal(kPieces + kBpe + piece("a", 0, 1)), HasSubstr("twice"));
    EXPECT_THAT(refusal(kPieces + kBpe + piece("b", std::numeric_limits<float>::quiet_NaN(), 1)),
                HasSubstr("not a number"));
    EXPECT_THAT(refusal(piece("a", 0, 1) + kBpe), HasSubstr("unknown"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 2) + number(41, 6))), HasSubstr("BOS id 6"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 2) + number(42, 1000000))), HasSubstr("EOS id 1000000"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 2) + number(35, 1))), HasSubstr("byte_fallback is on"));
    EXPECT_THAT(refusal(kPieces + kBpe + piece("<0x41>", 0, 6)), HasSubstr("byte_fallback is off"));
    EXPECT_THAT(refusal(kPieces + bytes(2, number(3, 2) + number(35, 1)) + piece("<0x4>", 0, 6)), HasSubstr("<0x4>"));
}

TEST(SentencePieceFile, ATruncatedModelIsRefusedOrWhole) {
    const std::string whole = content_of(kFairy);
    int n_refused = 0;
    for (std::size_t i = 0; i < 64; ++i)
        n_refused += refusal(whole.substr(0, whole.size() * i / 64)) != "accepted" ? 1 : 0;
    EXPECT_EQ(n_refused, 64);  // the trainer's specification comes last
}

}  // namespace
}  // namespace slipstream
