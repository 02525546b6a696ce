// Byte-level vocabularies out of other files: vocab.json with merges.txt, tiktoken ranks, GGUF arrays; and what a
// tokenizer_config.json adds.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/byte_level_files.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/pre_tokenizer_names.h"
#include "runtime/text/tokenizer/tokenizer_json.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"
#include "tests/support/base64.h"
#include "tests/support/byte_alphabet.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// The 256 bytes, "ab" (256), " a" (257), "<|endoftext|>" (258).
std::vector<std::string> spellings() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(byte_to_alphabet(static_cast<unsigned char>(byte)));
    tokens.insert(tokens.end(), {"ab", "\u0120a", "<|endoftext|>"});
    return tokens;
}

// --- vocab.json and merges.txt ---

struct Files {
    std::string vocabulary, merges = "#version: 0.2\na b\n\u0120 a\r\n";
    TokenizerSettings settings;
    Files() {
        json object;
        for (const std::string& token : spellings()) object[token] = object.size();
        vocabulary = object.dump();
        settings.tokenizer_class = "GPT2Tokenizer";
    }
    [[nodiscard]] std::unique_ptr<Tokenizer> read() const {
        return parse_vocab_merges(
            {.vocab_json = vocabulary, .merges_txt = merges, .vocab_name = "vocab.json", .merges_name = "merges.txt"},
            settings, {});
    }
    [[nodiscard]] std::string refusal() const {
        return error_text([&] { (void)read(); });
    }
};

TEST(VocabMerges, ReadsGpt2AndQwen2) {
    Files files;
    files.settings.eos_token = "<|endoftext|>";
    const auto gpt2 = files.read();
    EXPECT_EQ(gpt2->kind(), "byte-level BPE");
    EXPECT_THAT(gpt2->encode("ab a12", SpecialTokens::AsText), ElementsAre(256, 257, '1', '2'));
    EXPECT_THAT(gpt2->encode("a<|endoftext|>", SpecialTokens::Parse),
                ElementsAre('a', 258));  // special, though not listed
    EXPECT_THAT(gpt2->end_tokens(), ElementsAre(258));
    EXPECT_FALSE(gpt2->adds_space_prefix());
    files.settings.tokenizer_class = "Qwen2TokenizerFast";
    EXPECT_THAT(files.read()->encode("e\u0301", SpecialTokens::AsText), ElementsAre(0xc3, 0xa9));  // normalised
    files.settings.added_tokens = {{.content = "<|im_start|>", .id = 259, .special = true},
                                   {.content = "<tool>", .id = 300, .rstrip = true}};
    const auto qwen2 = files.read();
    EXPECT_EQ(qwen2->vocab_size(), 301);
    EXPECT_EQ(qwen2->token_kind(299), TokenKind::Unused);
    EXPECT_THAT(qwen2->encode("<|im_start|><tool> a", SpecialTokens::Parse), ElementsAre(259, 300, 'a'));
}

// Qwen 3.5 counts combining marks as letters: here, q with a macron below, which has no letter of its own.
TEST(VocabMerges, ReadsQwen35) {
    Files files;
    json object;
    for (const std::string& token : spellings()) object[token] = object.size();
    object["q" + byte_to_alphabet(0xcc)] = 259;
    files.vocabulary = object.dump();
    files.merges = "q " + byte_to_alphabet(0xcc) + "\n";
    files.settings.tokenizer_class = "Qwen2Tokenizer";
    EXPECT_THAT(files.read()->encode("q\u0331", SpecialTokens::AsText), ElementsAre('q', 0xcc, 0xb1));
    files.settings.tokenizer_class = "Qwen3_5Tokenizer";
    EXPECT_THAT(files.read()->encode("q\u0331", SpecialTokens::AsText), ElementsAre(259, 0xb1));
    EXPECT_THAT(files.read()->encode("e\u0301", SpecialTokens::AsText), ElementsAre(0xc3, 0xa9));  // normalised
}

TEST(VocabMerges, PutsASpaceInFrontWhereTheSettingsSaySo) {
    Files files;
    files.settings.add_prefix_space = true;
    const auto tokenizer = files.read();
    EXPECT_THAT(tokenizer->encode("a", SpecialTokens::AsText), ElementsAre(257));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("a b", SpecialTokens::AsText)), "a b");
}

TEST(VocabMerges, RefusesWhatItCannotKnow) {
    Files files;
    files.settings.tokenizer_class = "BertTokenizer";
    EXPECT_THAT(files.refusal(), HasSubstr("'BertTokenizer'"));
    files.settings.tokenizer_class = "";
    EXPECT_THAT(files.refusal(), HasSubstr("not given"));
    files = {};
    files.merges = "a b c\n";
    EXPECT_THAT(files.refusal(), HasSubstr("merges.txt: merge 0"));
    files.merges = "a q\n";
    EXPECT_THAT(files.refusal(), HasSubstr("'aq'"));
    files = {};
    files.vocabulary = "{\"a\": 0";
    EXPECT_THAT(files.refusal(), HasSubstr("vocab.json"));
    files.vocabulary = "{\"a\": 0, \"a\": 1}";
    EXPECT_THAT(files.refusal(), HasSubstr("there twice"));
}

// --- tokenizer_config.json ---

// Whoever spells it: what is plain is read at once, the rest by the JSON library, and neither takes what is no JSON.
TEST(VocabMerges, AVocabularyIsReadHoweverItIsSpelt) {
    for (const char* text :
         {R"({"a":0,"\"\\é":1})", R"({"a": 0, "\"\\é": 1})", " \n{\r\n\t\"a\" : 0 , \n\"\\\"\\\\é\":\t1\n} \n",
          R"({"a":0.0,"\"\\é":1e0})", R"({"\u0061":0,"\u0022\u005c\u00e9":1})"}) {
        const IndexedVocabulary vocabulary = read_vocabulary_object(text, "v");
        EXPECT_EQ(vocabulary.tokens->size(), 2) << text;
        EXPECT_EQ(vocabulary.find("a"), 0) << text;
        EXPECT_EQ(vocabulary.find("\"\\é"), 1) << text;
    }
    EXPECT_EQ(read_vocabulary_object("{}", "v").tokens->size(), 0);
    for (const char* text : {"",
                             "{",
                             "{\"a",
                             "{\"a\\",
                             "{\"a\\\"",
                             "{\"a\"",
                             "{\"a\":",
                             "{\"a\": 0",
                             "{\"a\": 0,}",
                             "{\"a\": 0} 1",
                             "{\"a\": 0}}",
                             "{\"a\" 0}",
                             "{\"a\": 01}",
                             "{\"a\": +1}",
                             "{\"a\": -1}",
                             "{\"a\": 0.5}",
                             "{\"a\": true}",
                             "{\"a\": \"0\"}",
                             "{\"a\": [0]}",
                             "{\"a\": 4294967296}",
                             "{\"a\": 18446744073709551616}",
                             "[\"a\"]",
                             "{\"\n\": 0}",
                             "{\"\\\n\": 0}",
                             "{\"\\x\": 0}",
                             "{\"\\ud800\": 0}",
                             "{\"\xff\": 0}",
                             "{\"\xc3\": 0}",
                             "{\"a\": 0, \"a\": 1}",
                             "{\"a\": 0, \"\\u0061\": 1}",
                             "{\"a\": 0, \"b\": 0}"})
        EXPECT_THROW(static_cast<void>(read_vocabulary_object(text, "v")), FormatError) << text;
}

TEST(TokenizerSettings, ReadsWhatIsAboutIds) {
    const auto read = [](const std::string& content) {
        return read_tokenizer_settings(content, "tokenizer_config.json");
    };
    const TokenizerSettings settings = read(R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null, "add_bos_token": true, "add_prefix_space": false,
        "chat_template": "...", "added_tokens_decoder": {
            "10": {"content": "b", "special": true, "rstrip": true}, "2": {"content": "a", "single_word": true}}})");
    EXPECT_EQ(settings.tokenizer_class, "LlamaTokenizer");
    EXPECT_EQ(settings.bos_token, "<s>");
    EXPECT_EQ(settings.eos_token, "</s>");
    EXPECT_FALSE(settings.unk_token.has_value());
    EXPECT_EQ(settings.add_bos, true);
    EXPECT_EQ(settings.add_prefix_space, false);
    ASSERT_EQ(settings.added_tokens.size(), 2U);
    EXPECT_EQ(settings.added_tokens[0].id, 2);
    EXPECT_TRUE(settings.added_tokens[0].single_word);
    EXPECT_TRUE(settings.added_tokens[0].normalized);
    EXPECT_TRUE(settings.added_tokens[1].special);
    EXPECT_TRUE(settings.added_tokens[1].rstrip);
    EXPECT_FALSE(settings.added_tokens[1].normalized);
    EXPECT_THAT(error_text([&] { (void)read(R"({"bos_token": 3})"); }), HasSubstr("bos_token"));
    EXPECT_THAT(error_text([&] { (void)read(R"({"added_tokens_decoder": {"-1": {"content": "a"}}})"); }),
                HasSubstr("'-1'"));
    EXPECT_TRUE(read("{}").tokenizer_class.empty());
}

// --- Tiktoken ---

std::string rank_file(const std::vector<std::string>& more) {
    std::string file;
    int rank = 0;
    for (int byte = 0; byte < 256; ++byte)
        file += fmt::format("{} {}\n", base64_of(std::string(1, static_cast<char>(byte))), rank++);
    for (const std::string& token : more) file += fmt::format("{} {}\n", base64_of(token), rank++);
    return file;
}

TEST(Tiktoken, MergesWhateverIsATokenTogether) {
    // No merge list: " abc" comes about from any halves, the lowest rank first; a word that is a token is one at once.
    const std::string file = rank_file({"bc", "ab", "abc", " abc", "xyz"});
    TiktokenEncoding encoding{.pattern = "[^ ]+| [^ ]+| ",
                              .special_tokens = {{.content = "<e>", .id = 300, .special = true}},
                              .eos_token = "<e>"};
    const auto tokenizer = parse_tiktoken(file, "ranks", encoding, {}, {});
    EXPECT_THAT(tokenizer->encode("abcab abc", SpecialTokens::AsText), ElementsAre(258, 257, 259));
    EXPECT_THAT(tokenizer->encode("xyz", SpecialTokens::AsText), ElementsAre(260));
    EXPECT_THAT(tokenizer->encode("xyzx", SpecialTokens::AsText), ElementsAre('x', 'y', 'z', 'x'));  // "xy" is no token
    EXPECT_THAT(tokenizer->encode("a<e>", SpecialTokens::Parse), ElementsAre('a', 300));
    EXPECT_EQ(tokenizer->vocab_size(), 301);
    EXPECT_EQ(tokenizer->piece(259), "\u0120abc");
    EXPECT_EQ(tokenizer->token_bytes(259), " abc");
    EXPECT_EQ(tokenizer->eos_id(), 300);
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(300));
}

TEST(Tiktoken, ToldFromOtherFilesAndRefusedWhereBroken) {
    EXPECT_TRUE(is_tiktoken("IQ== 0\nIg== 1\n"));
    EXPECT_TRUE(is_tiktoken("IQ== 0\r\n"));
    EXPECT_FALSE(is_tiktoken("\n\x0eSentencePiece"));
    EXPECT_FALSE(is_tiktoken("a b c\n"));
    EXPECT_FALSE(is_tiktoken(""));
    EXPECT_EQ(count_tiktoken_ranks(rank_file({"ab"}), "ranks"), 257U);
    const auto refused = [](const std::string& file) {
        return error_text([&] { (void)parse_tiktoken(file, "ranks", {.pattern = "."}, {}, {}); });
    };
    EXPECT_THAT(refused("IQ== x\n"), HasSubstr("line 1"));
    EXPECT_THAT(refused("IQ==\n"), HasSubstr("line 1"));
    EXPECT_THAT(refused("IQ== 0\n?? 1\n"), HasSubstr("line 2"));
    EXPECT_THAT(refused("IQ== -5\n"), HasSubstr("line 1"));
    EXPECT_THAT(refused("IQ== 0\nIQ== 0\n"), HasSubstr("rank 0 is there twice"));
    EXPECT_THAT(refused("IQ== 0\nIQ== 1\n"), HasSubstr("token 1 is there twice"));
    EXPECT_THAT(refused("IQ== 99999999999\n"), HasSubstr("broken"));
    EXPECT_THAT(refused(rank_file({std::string(1025, 'a')})), HasSubstr("token 256 has 1025 bytes"));
    EXPECT_THAT(error_text<Unsupported>([] { (void)published_tiktoken_encoding(17, "ranks"); }),
                HasSubstr("for 17 tokens"));
    EXPECT_EQ(published_tiktoken_encoding(128000, "ranks").special_tokens.size(), 256U);
}

// --- GGUF ---

GgufVocabulary gguf() {
    GgufVocabulary vocabulary;
    vocabulary.model = "gpt2";
    vocabulary.pre_tokenizer = "gpt-2";
    vocabulary.tokens = spellings();
    vocabulary.types.assign(vocabulary.tokens.size(), 1);
    vocabulary.types.back() = 3;
    vocabulary.tokens.emplace_back("user token");
    vocabulary.types.push_back(4);
    vocabulary.merges = {"a b", "\u0120 a"};
    vocabulary.eos_id = 258;
    return vocabulary;
}

TEST(GgufByteBpe, ReadsAVocabulary) {
    GgufVocabulary vocabulary = gguf();
    const auto tokenizer = byte_bpe_from_gguf(vocabulary);
    EXPECT_THAT(tokenizer->encode("ab a<|endoftext|>", SpecialTokens::Parse), ElementsAre(256, 257, 258));
    EXPECT_THAT(tokenizer->encode("a user token", SpecialTokens::AsText), ElementsAre('a', ' ', 259));
    EXPECT_EQ(tokenizer->token_bytes(259), "user token");
    EXPECT_EQ(tokenizer->token_bytes(258), "");
    EXPECT_FALSE(tokenizer->adds_bos());
    EXPECT_FALSE(tokenizer->adds_eos());
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(258));
    vocabulary.pre_tokenizer = "llama-bpe";  // whose models expect BOS, said or not
    vocabulary.bos_id = 258;
    EXPECT_TRUE(byte_bpe_from_gguf(vocabulary)->adds_bos());
    vocabulary.add_bos = false;
    vocabulary.add_eos = true;
    vocabulary.eot_id = 259;
    const auto told = byte_bpe_from_gguf(vocabulary);
    EXPECT_FALSE(told->adds_bos());
    EXPECT_TRUE(told->adds_eos());
    EXPECT_THAT(told->end_tokens(), ElementsAre(258, 259));
}

// In the harmony format, <|end|> ends a message, whatever a file says; elsewhere it ends an answer.
TEST(GgufByteBpe, EndsOfMessagesAreNoEndsOfAnswers) {
    GgufVocabulary vocabulary = gguf();
    const auto add = [&](const char* token) {
        vocabulary.tokens.emplace_back(token);
        vocabulary.types.push_back(3);
        return std::ssize(vocabulary.tokens) - 1;
    };
    vocabulary.eot_id = add("<|end|>");
    const auto end = static_cast<TokenId>(*vocabulary.eot_id);
    EXPECT_THAT(byte_bpe_from_gguf(vocabulary)->end_tokens(), ElementsAre(258, end));
    add("<|return|>");
    add("<|call|>");
    EXPECT_THAT(byte_bpe_from_gguf(vocabulary)->end_tokens(), ElementsAre(258, end + 1, end + 2));
    vocabulary.eos_id = end;
    EXPECT_THAT(byte_bpe_from_gguf(vocabulary)->end_tokens(), testing::Contains(end));
}

// DeepSeek's and Falcon's vocabularies lack bytes.
TEST(GgufByteBpe, AByteWithoutATokenIsDropped) {
    GgufVocabulary vocabulary = gguf();
    vocabulary.tokens['!'] = "!!";
    EXPECT_THAT(byte_bpe_from_gguf(vocabulary)->encode("a!b", SpecialTokens::AsText), ElementsAre('a', 'b'));
}

// DeepSeek's vocabularies have the letters of the thirteen bytes that UTF-8 never uses as user-defined tokens: "ü" is
// the token of byte 0xFC, as in llama.cpp and the tokenizers package.
TEST(GgufByteBpe, AUserDefinedLetterIsFoundAsItIsSpelt) {
    GgufVocabulary vocabulary = gguf();
    vocabulary.types[0xFC] = 4;
    ASSERT_EQ(vocabulary.tokens[0xFC], "ü");
    const auto tokenizer = byte_bpe_from_gguf(vocabulary);
    EXPECT_THAT(tokenizer->encode("für", SpecialTokens::AsText), ElementsAre('f', 0xFC, 'r'));
    EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'f', 0xFC, 'r'}), "für");
    EXPECT_THAT(tokenizer->encode("é", SpecialTokens::AsText), ElementsAre(0xC3, 0xA9));
    vocabulary.types['a'] = 4;  // nor does it merge
    EXPECT_THAT(byte_bpe_from_gguf(vocabulary)->encode("!ab", SpecialTokens::AsText), ElementsAre('!', 'a', 'b'));
}

TEST(GgufByteBpe, RefusesUnknownNamesAndBrokenArrays) {
    const auto refused = [](auto change) {
        GgufVocabulary vocabulary = gguf();
        change(vocabulary);
        return error_text([&] { (void)byte_bpe_from_gguf(vocabulary); });
    };
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.pre_tokenizer = "my-own"; }), HasSubstr("'my-own'"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.merges.clear(); }), HasSubstr("merges"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.merges[0] = "a q"; }), HasSubstr("'aq'"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.types.pop_back(); }), HasSubstr("types"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.types[0] = 9; }), HasSubstr("type 9"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.tokens[0].clear(); }), HasSubstr("empty"));
    EXPECT_THAT(refused([](GgufVocabulary& v) { v.eos_id = 260; }), HasSubstr("EOS id 260"));
}

TEST(PreTokenizerNames, EveryNameOfTheTableCompiles) {
    for (const char* name : {"",           "default",      "gpt-2",          "llama-bpe",   "llama3",
                             "qwen2",      "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",
                             "mpt",        "starcoder",    "refact",         "gpt-neox",    "olmo",
                             "tekken",     "smollm",       "gpt-4o",         "bloom",       "viking",
                             "bailingmoe", "seed-coder",   "command-r",      "dbrx"}) {
        const auto named = find_pre_tokenizer(name);
        ASSERT_TRUE(named.has_value()) << name;
        EXPECT_EQ(steps_of(*named, "test").size(), named->patterns.size() + 1) << name;
    }
    EXPECT_FALSE(find_pre_tokenizer("gpt-5").has_value());
}

}  // namespace
}  // namespace slipstream
