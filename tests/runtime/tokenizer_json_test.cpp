// tokenizer.json: what its parts do to ids and text, BOS and EOS between the files, and that whatever is not understood
// or broken is refused by name. Small files, written here.
#include "runtime/text/tokenizer/tokenizer_json.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "tests/support/byte_alphabet.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// Byte-level: the 256 bytes, then "ab" (256), " a" (257), " ab" (258) and two special tokens (259, 260).
json byte_level_file() {
    json vocabulary;
    for (int byte = 0; byte < 256; ++byte)
        vocabulary[std::string(byte_to_alphabet(static_cast<unsigned char>(byte)))] = byte;
    vocabulary["ab"] = 256;
    vocabulary["\u0120a"] = 257;
    vocabulary["\u0120ab"] = 258;
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"added_tokens",
             {{{"id", 259}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
              {{"id", 260}, {"content", "<|im_end|>"}, {"special", true}, {"normalized", false}}}},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"\u0120 a", "\u0120a b", "a b"}}}}};
}

/// Over characters, with byte fallback: "<unk>", "<s>", "</s>", the bytes, then "▁", "a", "b", "▁a" (262).
json character_file() {
    json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
    for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
    vocabulary["\u2581"] = 259;
    vocabulary["a"] = 260;
    vocabulary["b"] = 261;
    vocabulary["\u2581a"] = 262;
    json added = json::array();
    for (const char* special : {"<unk>", "<s>", "</s>"})
        added.push_back({{"id", added.size()}, {"content", special}, {"special", true}, {"normalized", false}});
    const json replace_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
    const json replace_mark = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
    return {{"added_tokens", added},
            {"normalizer",
             {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace_space}}}},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {replace_mark,
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"unk_token", "<unk>"},
              {"byte_fallback", true},
              {"fuse_unk", true},
              {"vocab", vocabulary},
              {"merges", json::array({json::array({"\u2581", "a"})})}}}};
}

std::unique_ptr<Tokenizer> read(const json& file, const TokenizerSettings& settings = {}, const TextEnds& ends = {}) {
    return parse_tokenizer_json(file.dump(), "some.json", settings, ends);
}

std::string refusal(const json& file) {
    std::string message = error_text([&] { (void)read(file); });
    EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
    return message;
}

TEST(TokenizerJson, ByteLevelVocabulary) {
    const auto tokenizer = read(byte_level_file());
    EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
    EXPECT_EQ(tokenizer->vocab_size(), 261);
    EXPECT_THAT(tokenizer->encode("ab ab b", SpecialTokens::AsText), ElementsAre(256, 258, ' ', 'b'));
    EXPECT_EQ(tokenizer->piece(258), "\u0120ab");
    EXPECT_EQ(tokenizer->token_bytes(258), " ab");
    EXPECT_EQ(tokenizer->token_bytes(259), "");
    EXPECT_EQ(tokenizer->token_kind(259), TokenKind::Control);
    EXPECT_EQ(tokenizer->token_kind(999), TokenKind::Unused);
    EXPECT_THAT(tokenizer->encode("a<s>ab", SpecialTokens::Parse), ElementsAre('a', 259, 256));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("<s>", SpecialTokens::AsText)), "<s>");
    EXPECT_FALSE(tokenizer->adds_space_prefix());
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(260));  // by its name
}

TEST(TokenizerJson, CharacterVocabularyWithByteFallback) {
    const auto tokenizer = read(character_file());
    EXPECT_EQ(tokenizer->kind(), "BPE");
    EXPECT_THAT(tokenizer->encode("a ab", SpecialTokens::AsText), ElementsAre(262, 262, 261));
    EXPECT_THAT(tokenizer->encode("\u00e9", SpecialTokens::AsText), ElementsAre(259, 3 + 0xc3, 3 + 0xa9));
    EXPECT_THAT(tokenizer->encode("b</s>b", SpecialTokens::Parse), ElementsAre(259, 261, 2, 259, 261));
    EXPECT_EQ(tokenizer->token_kind(3), TokenKind::Byte);
    EXPECT_EQ(tokenizer->token_bytes(13), "\n");
    EXPECT_TRUE(tokenizer->adds_space_prefix());
    for (const std::string text : {"a b", " a", "\u4f60 \U0001f600\n", "", "a\xff\xfe b"})
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialTokens::AsText)), text);
}

TEST(TokenizerJson, BytesThatAreNoCharactersAreEncodedOneByOne) {
    const auto bytes = read(byte_level_file());
    EXPECT_THAT(bytes->encode("ab\xff"
                              "ab\xe2\x96",
                              SpecialTokens::AsText),
                ElementsAre(256, 0xff, 256, 0xe2, 0x96));
    const auto characters = read(character_file());
    // Nothing is put in front of what stands behind them.
    EXPECT_THAT(characters->encode("a\xff"
                                   "a",
                                   SpecialTokens::AsText),
                ElementsAre(262, 3 + 0xff, 260));
}

TEST(TokenizerJson, WholeWordsWhereMergesAreIgnored) {
    json file = byte_level_file();
    file["model"]["merges"] = {"a b"};
    EXPECT_THAT(read(file)->encode("x ab", SpecialTokens::AsText), ElementsAre('x', ' ', 256));
    file["model"]["ignore_merges"] = true;
    EXPECT_THAT(read(file)->encode("x ab", SpecialTokens::AsText), ElementsAre('x', 258));
}

TEST(TokenizerJson, TheModelMayStandAnywhereInTheFile) {
    const json file = character_file();
    const std::string model = file["model"].dump();
    const std::string text = R"({"model": {"merges": )" + file["model"]["merges"].dump() +
                             R"(, "byte_fallback": true, "unk_token": "<unk>", "vocab": )" +
                             file["model"]["vocab"].dump() + R"(}, "decoder": )" + file["decoder"].dump() + "}";
    const auto tokenizer = parse_tokenizer_json(text, "some.json", {}, {});  // no type: files before 0.9
    EXPECT_THAT(tokenizer->encode("ab", SpecialTokens::AsText), ElementsAre(260, 261));
}

json template_of(const std::vector<std::string>& before, const std::vector<std::string>& after) {
    json single = json::array(), tokens = json::object();
    const auto add = [&](const std::string& token) {
        single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
        tokens[token] = {{"id", token}, {"ids", {token == "<s>" ? 259 : 260}}, {"tokens", {token}}};
    };
    for (const std::string& token : before) add(token);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const std::string& token : after) add(token);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", tokens}};
}

TEST(TokenizerJson, TemplatesSayWhatStandsAroundAText) {
    json file = byte_level_file();
    EXPECT_FALSE(read(file)->adds_bos());
    EXPECT_FALSE(read(file)->bos_id().has_value());
    file["post_processor"] = {{"type", "Sequence"},
                              {"processors", {{{"type", "ByteLevel"}}, template_of({"<s>"}, {})}}};
    EXPECT_EQ(read(file)->bos_id(), 259);
    EXPECT_TRUE(read(file)->adds_bos());
    EXPECT_FALSE(read(file)->adds_eos());
    file["post_processor"] = template_of({}, {"<|im_end|>"});
    EXPECT_EQ(read(file)->eos_id(), 260);
    EXPECT_TRUE(read(file)->adds_eos());
    EXPECT_FALSE(read(file)->adds_bos());
    file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 259}}, {"sep", {"<|im_end|>", 260}}};
    EXPECT_TRUE(read(file)->adds_bos());
    EXPECT_TRUE(read(file)->adds_eos());
}

TEST(TokenizerJson, TheDirectorysFilesOverruleTheTemplate) {
    json file = byte_level_file();
    TokenizerSettings settings;
    settings.bos_token = "<s>";
    settings.eos_token = "<|im_end|>";
    EXPECT_EQ(read(file, settings)->bos_id(), 259);
    EXPECT_FALSE(read(file, settings)->adds_bos());
    EXPECT_EQ(read(file, settings)->eos_id(), 260);
    settings.add_bos = true;
    EXPECT_TRUE(read(file, settings)->adds_bos());
    EXPECT_FALSE(read(file, settings, {.add_bos = false})->adds_bos());
    EXPECT_EQ(read(file, {}, {.bos_id = 7})->bos_id(), 7);
    EXPECT_THAT(error_text([&] { (void)read(file, {}, {.bos_id = 1000}); }), HasSubstr("id 1000"));
    file["post_processor"] = template_of({"<s>"}, {});
    EXPECT_FALSE(read(file, {}, {.add_bos = false})->adds_bos());
}

TEST(TokenizerJson, AddedTokensKeepTheirRules) {
    json file = byte_level_file();
    file["normalizer"] = {{"type", "Lowercase"}};
    file["added_tokens"].push_back({{"id", 261}, {"content", "WORD"}, {"normalized", true}, {"special", false}});
    file["added_tokens"].push_back({{"id", 262}, {"content", "EXACT"}, {"normalized", false}, {"lstrip", true}});
    file["added_tokens"].push_back(
        {{"id", 7777}, {"content", "ab"}, {"normalized", false}});  // in the vocabulary: its id
    const auto tokenizer = read(file);
    EXPECT_THAT(tokenizer->encode("word Word  EXACT exact", SpecialTokens::AsText),
                ElementsAre(261, ' ', 261, 262, ' ', 'e', 'x', 'a', 'c', 't'));
    EXPECT_THAT(tokenizer->encode("cabd", SpecialTokens::AsText), ElementsAre('c', 256, 'd'));
    EXPECT_EQ(tokenizer->token_bytes(261), "WORD");
    EXPECT_EQ(tokenizer->token_kind(261), TokenKind::UserDefined);
}

TEST(TokenizerJson, RefusesPartsThatItDoesNotKnowByName) {
    const auto with = [](const char* part, const json& value) {
        json file = byte_level_file();
        file[part] = value;
        return refusal(file);
    };
    const auto with_model = [](const char* field, const json& value) {
        json file = byte_level_file();
        file["model"][field] = value;
        return refusal(file);
    };
    EXPECT_EQ(refusal(byte_level_file()), "nothing thrown");
    EXPECT_THAT(with("normalizer", {{"type", "BertNormalizer"}}), HasSubstr("some.json: normalizer: BertNormalizer"));
    EXPECT_THAT(with("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}), HasSubstr("Nmt"));
    EXPECT_THAT(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), HasSubstr("pre_tokenizer: UnicodeScripts"));
    EXPECT_THAT(with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "\\Ga"}}}, {"behavior", "Isolated"}}),
                HasSubstr("'\\G'"));
    EXPECT_THAT(with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}}),
                HasSubstr("Sideways"));
    EXPECT_THAT(with("decoder", {{"type", "WordPiece"}}), HasSubstr("decoder: WordPiece"));
    EXPECT_THAT(with("decoder", {{"type", "CTC"}}), HasSubstr("CTC"));
    EXPECT_THAT(with("decoder", {{"type", "Metaspace"}, {"replacement", "_"}}), HasSubstr("another decoder"));
    EXPECT_THAT(with("post_processor", {{"type", "Wreath"}}), HasSubstr("post_processor: Wreath"));
    EXPECT_THAT(with("post_processor", template_of({"<s>", "<|im_end|>"}, {})), HasSubstr("more than one token"));
    EXPECT_THAT(with_model("type", "WordPiece"), HasSubstr("'WordPiece'"));
    EXPECT_THAT(with_model("type", "WordLevel"), HasSubstr("'WordLevel'"));
    EXPECT_THAT(with_model("dropout", 0.1), HasSubstr("dropout"));
    EXPECT_THAT(with_model("continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix"));
    EXPECT_THAT(with_model("end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
    EXPECT_EQ(with_model("dropout", nullptr), "nothing thrown");
    EXPECT_EQ(with_model("end_of_word_suffix", ""), "nothing thrown");
    json unigram = byte_level_file();
    unigram["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array({json::array({"<unk>", 0.0})})}};
    EXPECT_THAT(refusal(unigram), HasSubstr("Unigram model after ByteLevel"));
    EXPECT_THROW((void)read(unigram), Unsupported);
}

TEST(TokenizerJson, RefusesBrokenFiles) {
    const auto text = [](const std::string& file) {
        return error_text([&] { (void)parse_tokenizer_json(file, "some.json", {}, {}); });
    };
    const auto changed = [](auto change) {
        json file = byte_level_file();
        change(file);
        return refusal(file);
    };
    EXPECT_THAT(text(""), HasSubstr("some.json"));
    EXPECT_THAT(text("[]"), HasSubstr("no object"));
    EXPECT_THAT(text("{}"), HasSubstr("there is no model"));
    EXPECT_THAT(text(R"({"model": 3})"), HasSubstr("model is not an object"));
    EXPECT_THAT(text(R"({"model": {"type": "BPE"}})"), HasSubstr("vocab or merges are missing"));
    EXPECT_THAT(text(byte_level_file().dump().substr(0, 1000)), HasSubstr("some.json"));
    EXPECT_THAT(changed([](json& f) { f["model"]["vocab"]["ab"] = 5; }), HasSubstr("id 5 belongs to"));
    EXPECT_THAT(changed([](json& f) { f["model"]["vocab"]["ab"] = -1; }), HasSubstr("-1"));
    EXPECT_THAT(changed([](json& f) { f["model"]["vocab"]["ab"] = 1ULL << 40; }), HasSubstr("broken"));
    EXPECT_THAT(changed([](json& f) { f["model"]["vocab"]["ab"] = "x"; }), HasSubstr("neither token nor merge"));
    EXPECT_THAT(changed([](json& f) { f["model"]["merges"].push_back("a q b"); }), HasSubstr("not two tokens"));
    EXPECT_THAT(changed([](json& f) { f["model"]["merges"].push_back("a q"); }),
                HasSubstr("'aq', which is not a token"));
    EXPECT_THAT(changed([](json& f) { f["model"]["merges"].push_back(json::array({"a"})); }),
                HasSubstr("neither token nor merge"));
    EXPECT_THAT(changed([](json& f) {
                    f["model"]["merges"].push_back(json::array({"a", "b", "c"}));
                }),
                HasSubstr("neither token nor merge"));
    EXPECT_THAT(changed([](json& f) { f["model"]["unk_token"] = "nowhere"; }), HasSubstr("'nowhere'"));
    EXPECT_THAT(changed([](json& f) { f["added_tokens"][0]["id"] = 3; }), HasSubstr("has the id of"));
    EXPECT_THAT(changed([](json& f) { f["added_tokens"][0].erase("id"); }), HasSubstr("id"));
    EXPECT_THAT(changed([](json& f) { f["added_tokens"][0]["content"] = ""; }), HasSubstr("content"));
    EXPECT_THAT(changed([](json& f) { f["added_tokens"][0]["id"] = 1 << 30; }), HasSubstr("id"));
    EXPECT_THAT(changed([](json& f) { f["added_tokens"] = 3; }), HasSubstr("not a list"));
    EXPECT_THAT(changed([](json& f) { f["normalizer"] = 3; }), HasSubstr("not an object"));
    EXPECT_THAT(changed([](json& f) {
                    f["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}};
                }),
                HasSubstr("not base64"));
    EXPECT_THAT(changed([](json& f) {
                    f["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {3}}};
                }),
                HasSubstr("single"));
    EXPECT_THAT(changed([](json& f) {
                    f["post_processor"] = template_of({"<s>"}, {});
                    f["post_processor"]["special_tokens"]["<s>"]["ids"] = {999};
                }),
                HasSubstr("id 999"));
    json deep = byte_level_file();
    for (int i = 0; i < 40; ++i)
        deep["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array({deep["normalizer"]})}};
    EXPECT_THAT(refusal(deep), HasSubstr("nested"));
    json many = byte_level_file();
    many["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
    for (int i = 0; i < 100; ++i) many["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
    EXPECT_THAT(refusal(many), HasSubstr("more than 64 steps"));
}

}  // namespace
}  // namespace slipstream
