// tekken.json: which ids its tokens get, and which files are refused. Ids equal to mistral-common's: see
// tokenizer_agreement_test.cpp.
#include "runtime/text/tokenizer/tekken_file.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tests/support/base64.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json entry(std::size_t rank, const std::string& bytes) {
    return {{"rank", rank}, {"token_bytes", base64_of(bytes)}, {"token_str", nullptr}};
}

/// The 256 bytes, "ab" (rank 256), " ab" (257), "</s>" (258), and "abc" (259), which is cut off; 30 special tokens, of
/// which 4 are listed.
json tekken() {
    json file;
    file["config"] = {{"pattern", "[^ ]+| [^ ]+| "},
                      {"num_vocab_tokens", 260},
                      {"default_vocab_size", 30 + 259},
                      {"default_num_special_tokens", 30},
                      {"version", "v13"}};
    json& vocab = file["vocab"] = json::array();
    for (std::size_t byte = 0; byte < 256; ++byte)
        vocab.push_back(entry(byte, std::string(1, static_cast<char>(byte))));
    for (const char* token : {"ab", " ab", "</s>", "abc"}) vocab.push_back(entry(vocab.size(), token));
    file["special_tokens"] = {{{"rank", 0}, {"token_str", "<unk>"}, {"is_control", true}},
                              {{"rank", 1}, {"token_str", "<s>"}, {"is_control", true}},
                              {{"rank", 2}, {"token_str", "</s>"}, {"is_control", true}},
                              {{"rank", 5}, {"token_str", "[THINK]"}, {"is_control", false}}};
    return file;
}

std::unique_ptr<Tokenizer> read(const std::string& text, const TokenizerSettings& settings = {},
                                const TextEnds& ends = {}) {
    return parse_tekken(text, "tekken.json", settings, ends);
}

TEST(TekkenFile, IdsOfOrdinaryTokensComeAfterTheSpecialOnes) {
    const auto tokenizer = read(tekken().dump());
    EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
    EXPECT_EQ(tokenizer->vocab_size(), 289);
    EXPECT_THAT(tokenizer->encode("ab ab", SpecialTokens::AsText), ElementsAre(286, 287));
    EXPECT_THAT(tokenizer->encode("abc", SpecialTokens::AsText), ElementsAre(286, 30 + 'c')) << "abc is cut off";
    EXPECT_THAT(tokenizer->encode(std::string("\0\xff", 2), SpecialTokens::AsText), ElementsAre(30, 285));
    EXPECT_EQ(tokenizer->piece(287), "\u0120ab");
    EXPECT_EQ(tokenizer->token_bytes(287), " ab");
    EXPECT_EQ(tokenizer->token_kind(289), TokenKind::Unused);
}

TEST(TekkenFile, SpecialTokensAreControlTokensWithNames) {
    const auto tokenizer = read(tekken().dump());
    EXPECT_EQ(tokenizer->piece(3), "<SPECIAL_3>");
    EXPECT_EQ(tokenizer->piece(5), "[THINK]");
    EXPECT_EQ(tokenizer->piece(29), "<SPECIAL_29>");
    for (TokenId id = 0; id < 30; ++id) {
        EXPECT_EQ(tokenizer->token_kind(id), TokenKind::Control) << id;
        EXPECT_EQ(tokenizer->token_bytes(id), "") << id;
    }
    EXPECT_EQ(tokenizer->bos_id(), 1);
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->eos_id(), 2);
    EXPECT_FALSE(tokenizer->adds_eos());
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
    EXPECT_THAT(tokenizer->encode("[THINK]ab<SPECIAL_7>", SpecialTokens::Parse), ElementsAre(5, 286, 7));
    EXPECT_THAT(tokenizer->encode_prompt("ab", SpecialTokens::Parse), ElementsAre(1, 286));
}

// The vocabulary may have an ordinary token that is spelt like a special one.
TEST(TekkenFile, AnOrdinaryTokenKeepsItsId) {
    const auto tokenizer = read(tekken().dump());
    EXPECT_THAT(tokenizer->encode("</s>", SpecialTokens::AsText), ElementsAre(288));
    EXPECT_THAT(tokenizer->encode("</s>", SpecialTokens::Parse), ElementsAre(2));
    EXPECT_THAT(tokenizer->encode_prompt({.bytes = "</s>", .said = {{0, 4}}}), ElementsAre(1, 288));
    EXPECT_EQ(tokenizer->token_kind(288), TokenKind::Normal);
}

TEST(TekkenFile, OtherFilesMaySayHowTextsBegin) {
    json file = tekken();
    EXPECT_FALSE(read(file.dump(), {}, {.add_bos = false})->adds_bos());
    EXPECT_FALSE(read(file.dump(), {.add_bos = false})->adds_bos());
    EXPECT_EQ(read(file.dump(), {.bos_token = "<SPECIAL_9>"})->bos_id(), 9);
    EXPECT_THAT(read(file.dump(), {.eos_token = "<SPECIAL_9>"})->end_tokens(), ElementsAre(9));
    // An added token of tokenizer_config.json does not rename a special one.
    const TokenizerSettings settings{.added_tokens = {{.content = "<other>", .id = 9, .special = true}}};
    EXPECT_EQ(read(file.dump(), settings)->piece(9), "<SPECIAL_9>");
    file["special_tokens"][1]["token_str"] = "<begin>";
    EXPECT_FALSE(read(file.dump())->bos_id().has_value());
    EXPECT_EQ(read(file.dump(), {}, {.bos_id = 1})->bos_id(), 1);
}

TEST(TekkenFile, AnOldFileHasTheFixedList) {
    json file = tekken();
    file.erase("special_tokens");
    file["config"]["version"] = "v3";
    const auto tokenizer = read(file.dump());
    EXPECT_EQ(tokenizer->piece(0), "<unk>");
    EXPECT_EQ(tokenizer->piece(3), "[INST]");
    EXPECT_EQ(tokenizer->piece(9), "[TOOL_CALLS]");
    EXPECT_EQ(tokenizer->piece(16), "[SUFFIX]");
    EXPECT_EQ(tokenizer->piece(17), "<SPECIAL_17>") << "a model of v3 knows no [SYSTEM_PROMPT]";
    EXPECT_EQ(tokenizer->piece(20), "<SPECIAL_20>");
    EXPECT_EQ(tokenizer->eos_id(), 2);
    file["special_tokens"] = nullptr;
    EXPECT_EQ(read(file.dump())->piece(3), "[INST]");
    file["config"]["version"] = "v7";
    EXPECT_EQ(read(file.dump())->piece(17), "[SYSTEM_PROMPT]");
    EXPECT_EQ(read(file.dump())->piece(19), "[TOOL_CONTENT]");
}

/// The message of the error for the file after `change`.
std::string refusal(const std::function<void(json&)>& change) {
    json file = tekken();
    change(file);
    return error_text<Error>([&] { static_cast<void>(read(file.dump())); });
}

TEST(TekkenFile, RefusesABrokenConfig) {
    EXPECT_THAT(refusal([](json& file) { file.erase("config"); }), HasSubstr("not a tekken.json"));
    EXPECT_THAT(refusal([](json& file) { file["config"] = 1; }), HasSubstr("config is not an object"));
    for (const char* key : {"pattern", "default_vocab_size", "default_num_special_tokens"})
        EXPECT_THAT(refusal([&](json& file) { file["config"].erase(key); }), HasSubstr(fmt::format("{} is mis", key)));
    for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{16385}, std::int64_t{1} << 62})
        EXPECT_THAT(refusal([&](json& file) { file["config"]["default_num_special_tokens"] = n; }),
                    HasSubstr("default_num_special_tokens is"));
    // Less than the special tokens and all bytes; more than the file has; no number that fits.
    for (const json& size : {json(285), json(291), json(0), json(-1), json(INT64_MIN), json(INT64_MAX)})
        EXPECT_THAT(refusal([&](json& file) { file["config"]["default_vocab_size"] = size; }),
                    HasSubstr("field default_vocab_size is "))
            << size;
    for (const json& size : {json(UINT64_MAX), json(289.5), json("289"), json(true)})
        EXPECT_THAT(refusal([&](json& file) { file["config"]["default_vocab_size"] = size; }),
                    HasSubstr("not an integer"))
            << size;
    EXPECT_THAT(refusal([](json& file) { file["config"]["pattern"] = ""; }), HasSubstr("pattern is missing"));
    EXPECT_THAT(refusal([](json& file) { file["config"]["pattern"] = "(a"; }), HasSubstr("tekken.json"));
    EXPECT_THAT(refusal([](json& file) { file["config"]["pattern"] = "(?<=a)\\K"; }), HasSubstr("tekken.json"));
    json least = tekken();
    least["config"]["default_vocab_size"] = 286;
    EXPECT_EQ(read(least.dump())->vocab_size(), 286);
    json most = tekken();
    most["config"]["default_vocab_size"] = 290;
    EXPECT_THAT(read(most.dump())->encode("abc", SpecialTokens::AsText), ElementsAre(289));
}

TEST(TekkenFile, RefusesABrokenVocabulary) {
    const auto with_entry = [](std::size_t rank, const std::string& key, const json& value) {
        return refusal([&](json& file) { file["vocab"][rank][key] = value; });
    };
    for (const json& rank :
         {json(0), json(258), json(-1), json(257.0), json("257"), json(UINT64_MAX), json(), json({})})
        EXPECT_THAT(with_entry(257, "rank", rank), HasSubstr("entry 257 of vocab")) << rank;
    for (const json& bytes :
         {json(""), json("="), json("a"), json("??"), json("IQ==IQ=="), json("IQ\n=="), json(3), json()})
        EXPECT_THAT(with_entry(257, "token_bytes", bytes), HasSubstr("entry 257 of vocab")) << bytes;
    EXPECT_THAT(with_entry(257, "token_str", 3), HasSubstr("entry 257 of vocab"));
    EXPECT_THAT(with_entry(257, "score", 3), HasSubstr("entry 257 of vocab"));
    EXPECT_THAT(with_entry(259, "token_bytes", "?"), HasSubstr("entry 259 of vocab")) << "also if it is cut off";
    EXPECT_THAT(with_entry(65, "token_bytes", "IQ=="), HasSubstr("entry 65 of vocab is not the byte 65"));
    EXPECT_THAT(with_entry(257, "token_bytes", "YWI="), HasSubstr("token 287 is there twice"));
    EXPECT_EQ(with_entry(259, "token_bytes", "YWI="), "nothing thrown") << "twice only past the end";
    EXPECT_THAT(with_entry(257, "token_bytes", base64_of(std::string(1025, 'a'))), HasSubstr("1025 bytes"));
    for (const json& wrong : {json(3), json("a"), json(), json(true), json::array(), json(1.5), json(-1)})
        EXPECT_THAT(refusal([&](json& file) { file["vocab"][257] = wrong; }), HasSubstr("entry 257 of vocab")) << wrong;
    for (const char* key : {"rank", "token_bytes"})
        EXPECT_THAT(refusal([&](json& file) { file["vocab"][257].erase(key); }), HasSubstr("entry 257 of vocab"));
    EXPECT_THAT(refusal([](json& file) { file["vocab"].erase(257); }), HasSubstr("entry 257 of vocab")) << "missing";
    for (const json& wrong : {json::array(), json::object(), json(3), json()})
        EXPECT_THAT(refusal([&](json& file) { file["vocab"] = wrong; }), HasSubstr("0 entries of vocab")) << wrong;
    EXPECT_THAT(refusal([](json& file) { file.erase("vocab"); }), HasSubstr("0 entries of vocab"));
}

TEST(TekkenFile, RefusesBrokenSpecialTokens) {
    const auto with_token = [](const std::string& key, const json& value) {
        return refusal([&](json& file) { file["special_tokens"][3][key] = value; });
    };
    for (const json& rank : {json(30), json(-1), json(UINT64_MAX), json("5"), json(5.0), json()})
        EXPECT_THAT(with_token("rank", rank), HasSubstr("special_tokens: field rank")) << rank;
    EXPECT_THAT(with_token("rank", 2), HasSubstr("rank is 2 in two tokens"));
    for (const json& text : {json(""), json(3), json()})
        EXPECT_THAT(with_token("token_str", text), HasSubstr("special_tokens: field token_str")) << text;
    EXPECT_THAT(with_token("token_str", "<s>"), HasSubstr("'<s>' is there twice"));
    EXPECT_THAT(with_token("token_str", "<SPECIAL_7>"), HasSubstr("'<SPECIAL_7>' is there twice"));
    EXPECT_THAT(with_token("token_str", std::string(2000, 'a')), HasSubstr("tekken.json"));
    EXPECT_THAT(with_token("is_control", 1), HasSubstr("is_control"));
    for (const json& wrong : {json(3), json::object(), json("a")})
        EXPECT_THAT(refusal([&](json& file) { file["special_tokens"] = wrong; }), HasSubstr("is not a list")) << wrong;
    EXPECT_THAT(refusal([](json& file) { file["special_tokens"][0] = 3; }), HasSubstr("not a token"));
    EXPECT_THAT(refusal([](json& file) { file.erase("special_tokens"); }), HasSubstr("'v13'"));
    EXPECT_THAT(refusal([](json& file) {
                    file.erase("special_tokens");
                    file["config"].erase("version");
                }),
                HasSubstr("up to version v7"));
    EXPECT_THAT(refusal([](json& file) {
                    file.erase("special_tokens");
                    file["config"]["version"] = "v7";
                    file["config"]["default_num_special_tokens"] = 19;
                }),
                HasSubstr("19 special tokens"));
    EXPECT_EQ(refusal([](json& file) {
                  file["special_tokens"] = json::array();
                  file["config"]["default_num_special_tokens"] = 0;
                  file["config"]["default_vocab_size"] = 256;
              }),
              "nothing thrown");
}

TEST(TekkenFile, RefusesWhatIsNoJsonObject) {
    const std::string whole = tekken().dump();
    const auto message = [](const std::string& text) {
        return error_text<FormatError>([&] { static_cast<void>(read(text)); });
    };
    for (const std::string text : {"", "[]", "3", "null", "{", "\xff", "IQ== 0\n"})
        EXPECT_THAT(message(text), HasSubstr("tekken.json")) << text;
    for (std::size_t size = 0; size < whole.size(); size += 97)
        EXPECT_THAT(message(whole.substr(0, size)), HasSubstr("not JSON")) << size;
    std::string not_utf8 = whole;
    not_utf8.replace(not_utf8.find("[THINK]"), 1, "\xe4");
    EXPECT_THAT(message(not_utf8), HasSubstr("not JSON"));
    std::string twice = whole;
    EXPECT_THAT(message(twice.insert(1, R"("vocab": [], )")), HasSubstr("\"vocab\" occurs twice"));
    twice = whole;
    EXPECT_THAT(message(twice.insert(1, R"("vocab": {}, )")), HasSubstr("\"vocab\" occurs twice"));
    std::string rank_twice = whole;
    rank_twice.insert(rank_twice.find(R"("rank":257)"), R"("rank":257,)");
    EXPECT_THAT(message(rank_twice), HasSubstr("entry 257 of vocab"));
    EXPECT_THAT(message(fmt::format("{{\"x\":{}", std::string(100, '['))), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace slipstream
