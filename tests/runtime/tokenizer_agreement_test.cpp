// Ids equal to the original packages' (tokenizers, sentencepiece, tiktoken, mistral-common): small vocabularies of our
// own, one for every way that text takes (tests/golden/tokenizer/make_trained.py), on 20,000 random texts each, by the
// hash of all ids; the first texts stand beside it with their ids, to show what differs. Published vocabularies too,
// where they are found.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/byte_level_files.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/utf8.h"
#include "tests/support/random_texts.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = SLIPSTREAM_GOLDEN_DIR "/tokenizer";
const fs::path kTrained = kGolden / "trained";
const fs::path kShared = SLIPSTREAM_SOURCE_DIR "/../shared/data/tokenizers";
constexpr std::size_t kTexts = 20000;

std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string utf8(const std::u32string& text) {
    std::string result;
    for (const char32_t point : text) append_utf8(point, result);
    return result;
}

std::u32string utf32(std::string_view text) {
    std::u32string result;
    for (std::size_t at = 0; at < text.size(); at += next_utf8(text.substr(at)).length)
        result += code_point(text.substr(at));
    return result;
}

std::string unhex(std::string_view hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    return bytes;
}

/// The golden file: hashes of the runs in its first line, then texts and ids of the last run.
void expect_golden(const Tokenizer& tokenizer, const std::vector<std::u32string>& texts, const fs::path& golden,
                   const std::vector<SpecialTokens>& runs) {
    std::ifstream file(golden);
    ASSERT_TRUE(file) << golden;
    std::string first;
    std::getline(file, first);
    std::istringstream expected(first);
    int n_lines = 0;
    for (std::string line; std::getline(file, line); ++n_lines) {
        const std::size_t tab = line.find('\t');
        const std::string text = unhex(line.substr(0, tab));
        std::istringstream ids(line.substr(tab + 1));
        const std::vector<TokenId> wanted{std::istream_iterator<TokenId>(ids), {}};
        EXPECT_EQ(tokenizer.encode(text, runs.back()), wanted) << golden.stem() << ": " << text;
    }
    EXPECT_EQ(n_lines, 40) << golden;
    for (const SpecialTokens special : runs) {
        IdHash hash;
        for (const std::u32string& text : texts) hash.add(tokenizer.encode(utf8(text), special));
        std::string wanted;
        ASSERT_TRUE(expected >> wanted) << golden;
        EXPECT_EQ(fmt::format("{:016x}", hash.value()), wanted) << golden << ", run " << static_cast<int>(special);
    }
}

std::vector<std::u32string> added_contents(const fs::path& tokenizer_json) {
    std::vector<std::u32string> contents;
    const auto json = nlohmann::json::parse(content_of(tokenizer_json));
    for (const auto& token : json["added_tokens"]) contents.push_back(utf32(token["content"].get<std::string>()));
    return contents;
}

class TokenizerJsonAgreement : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerJsonAgreement, GivesTheIdsOfTheTokenizersPackage) {
    TokenizerSource source;
    source.tokenizer_json = kTrained / (GetParam() + ".json");
    auto texts = random_texts(kTexts);
    put_spellings(texts, added_contents(source.tokenizer_json));
    expect_golden(*make_tokenizer(source), texts, kTrained / (GetParam() + ".txt"),
                  {SpecialTokens::AsText, SpecialTokens::Parse});
}

INSTANTIATE_TEST_SUITE_P(Trained, TokenizerJsonAgreement,
                         testing::Values("bloom", "deepseek_coder", "falcon", "gemma", "gemma4", "gpt2", "llama2",
                                         "llama3", "metaspace", "odd_steps", "o200k", "prefix_space", "qwen2", "qwen35",
                                         "starcoder", "tekken", "unigram", "unigram_bytes", "unigram_rules", "words"),
                         [](const auto& parameter) { return parameter.param; });

TEST(TokenizerAgreement, GivesTheIdsOfTheSentencePiecePackage) {
    const auto texts = random_texts(kTexts);
    for (const std::string name : {"spm_unigram", "spm_bpe_rules", "spm_unigram_rules"}) {
        TokenizerSource source;
        source.sentencepiece_model = kTrained / (name + ".model");
        expect_golden(*make_tokenizer(source), texts, kTrained / (name + ".txt"), {SpecialTokens::AsText});
    }
}

TEST(TokenizerAgreement, GivesTheIdsOfTheTiktokenPackage) {
    const auto texts = random_texts(kTexts);
    const std::string file = content_of(kTrained / "ranks.tiktoken");
    const std::pair<std::string, std::size_t> encodings[] = {{"cl100k", 100256}, {"o200k", 199998}};
    for (const auto& [name, n_ranks] : encodings) {
        TiktokenEncoding encoding = published_tiktoken_encoding(n_ranks, name);
        encoding.special_tokens.clear();  // theirs are ids of the published vocabulary
        const auto tokenizer = parse_tiktoken(file, name, encoding, {}, {});
        expect_golden(*tokenizer, texts, kTrained / ("ranks_" + name + ".txt"), {SpecialTokens::AsText});
    }
}

/// Compares with ids that make_tekken.py wrote; returns the tokenizer of the tekken.json `file`.
std::unique_ptr<Tokenizer> expect_tekken(const fs::path& file, const fs::path& golden) {
    TokenizerSource source;
    source.tekken_json = file;
    auto tokenizer = make_tokenizer(source);
    auto texts = random_texts(kTexts);
    // As in make_tekken.py, every tenth text ends with the spelling of a special token, which stays text.
    constexpr std::size_t kNamed = 22;  // special tokens whose spellings are in texts, from id 0
    for (std::size_t i = 0; i < texts.size(); i += 10)
        texts[i] += utf32(tokenizer->piece(static_cast<TokenId>(i / 10 % kNamed)));
    expect_golden(*tokenizer, texts, golden, {SpecialTokens::AsText});
    for (const std::u32string& text : texts)
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(utf8(text), SpecialTokens::AsText)), utf8(text));
    return tokenizer;
}

TEST(TokenizerAgreement, GivesTheIdsOfTheMistralCommonPackage) {
    EXPECT_EQ(expect_tekken(kGolden / "tekken/tekken.json", kGolden / "tekken/ids.txt")->vocab_size(), 561);
}

TEST(TokenizerAgreement, GivesTheIdsOfTheMistralCommonPackageForAPublishedVocabulary) {
    const fs::path file = kShared / "tekken/tekken.json";
    if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
    EXPECT_EQ(expect_tekken(file, kGolden / "published_tekken.txt")->vocab_size(), 131072);
}

// The package encodes valid text only. A byte that is not part of a character is a token of its own.
TEST(TokenizerAgreement, TekkenKeepsInvalidBytes) {
    TokenizerSource source;
    source.tekken_json = kGolden / "tekken/tekken.json";
    const auto tokenizer = make_tokenizer(source);
    TextRandom random(5);
    for (int n = 0; n < 10000; ++n) {
        std::string text = utf8(random_text(random));
        for (std::size_t i = random.below(4); i > 0 && !text.empty(); --i)
            text[random.below(text.size())] = static_cast<char>(random.below(256));
        const auto ids = tokenizer->encode(text, SpecialTokens::AsText);
        ASSERT_EQ(tokenizer->decode(ids), text);
        for (const TokenId id : ids) ASSERT_EQ(tokenizer->token_kind(id), TokenKind::Normal);
    }
    EXPECT_EQ(tokenizer->encode("\xff\xe4\xbd", SpecialTokens::AsText),
              (std::vector<TokenId>{40 + 0xff, 40 + 0xe4, 40 + 0xbd}));
}

/// The vocabulary of a trained tokenizer.json as a GGUF file would hold it.
GgufVocabulary gguf_of(const std::string& trained) {
    const auto json = nlohmann::json::parse(content_of(kTrained / (trained + ".json")));
    GgufVocabulary vocabulary;
    vocabulary.model = "gpt2";
    std::size_t n_tokens = json["model"]["vocab"].size();
    for (const auto& token : json["added_tokens"]) n_tokens = std::max(n_tokens, token["id"].get<std::size_t>() + 1);
    vocabulary.tokens.resize(n_tokens);
    vocabulary.types.assign(vocabulary.tokens.size(), 1);
    for (const auto& [token, id] : json["model"]["vocab"].items()) vocabulary.tokens[id.get<std::size_t>()] = token;
    for (const auto& token : json["added_tokens"]) {
        const auto id = token["id"].get<std::size_t>();
        vocabulary.tokens[id] = token["content"];
        vocabulary.types[id] = 3;
    }
    for (const auto& merge : json["model"]["merges"])
        vocabulary.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    return vocabulary;
}

TEST(TokenizerAgreement, CutsWordsAsTheNamesOfGgufFilesSay) {
    const auto texts = random_texts(kTexts);
    TokenizerSource source;
    source.gguf = gguf_of("gpt2");
    std::ifstream golden(kTrained / "pre_tokenizers.txt");
    int n_names = 0;
    for (std::string name, wanted; golden >> name >> wanted; ++n_names) {
        source.gguf->pre_tokenizer = name;
        const auto tokenizer = make_tokenizer(source);
        IdHash hash;
        for (const std::u32string& text : texts) hash.add(tokenizer->encode(utf8(text), SpecialTokens::AsText));
        EXPECT_EQ(fmt::format("{:016x}", hash.value()), wanted) << name;
    }
    EXPECT_EQ(n_names, 29);
}

// With a vocabulary that was trained under the pattern, words that are cut otherwise get other ids.
TEST(TokenizerAgreement, NamesOfGgufFilesGiveTheIdsOfTheTokenizerJson) {
    const auto texts = random_texts(kTexts);
    const auto hash_of = [&](const TokenizerSource& source) {
        const auto tokenizer = make_tokenizer(source);
        IdHash hash;
        for (const std::u32string& text : texts) hash.add(tokenizer->encode(utf8(text), SpecialTokens::AsText));
        return hash.value();
    };
    for (const auto& [trained, name, other] :
         {std::tuple("qwen35", "qwen35", "qwen2"), std::tuple("o200k", "gpt-4o", "tekken"),
          std::tuple("o200k", "minimax-m2", "qwen35")}) {
        TokenizerSource json;
        json.tokenizer_json = kTrained / (std::string(trained) + ".json");
        TokenizerSource gguf;
        gguf.gguf = gguf_of(trained);
        gguf.gguf->pre_tokenizer = name;
        EXPECT_EQ(hash_of(gguf), hash_of(json)) << name;
        gguf.gguf->pre_tokenizer = other;
        EXPECT_NE(hash_of(gguf), hash_of(json)) << name << " as " << other;
    }
}

TEST(TokenizerAgreement, GivesTheIdsOfThePackagesForPublishedVocabularies) {
    const auto texts = random_texts(kTexts);
    if (!fs::exists(kShared / "llama2")) GTEST_SKIP() << kShared << " is not there";
    TokenizerSource llama2;
    llama2.sentencepiece_model = kShared / "llama2/tokenizer.model";
    expect_golden(*make_tokenizer(llama2), texts, kGolden / "published_llama2.txt", {SpecialTokens::AsText});
    TokenizerSource llama3;
    llama3.sentencepiece_model = kShared / "llama3/tokenizer.model";
    expect_golden(*make_tokenizer(llama3), texts, kGolden / "published_llama3.txt", {SpecialTokens::AsText});
    TokenizerSource qwen2;
    qwen2.vocab_json = kShared / "qwen2/vocab.json";
    qwen2.merges_txt = kShared / "qwen2/merges.txt";
    qwen2.tokenizer_config_json = kShared / "qwen2/tokenizer_config.json";
    auto mixed = texts;
    std::vector<std::u32string> contents;
    const auto settings = nlohmann::json::parse(content_of(qwen2.tokenizer_config_json));
    for (const auto& [id, token] : settings["added_tokens_decoder"].items())
        contents.push_back(utf32(token["content"].get<std::string>()));
    put_spellings(mixed, contents);
    expect_golden(*make_tokenizer(qwen2), mixed, kGolden / "published_qwen2.txt",
                  {SpecialTokens::AsText, SpecialTokens::Parse});
}

}  // namespace
}  // namespace slipstream
