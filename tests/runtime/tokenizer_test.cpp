// make_tokenizer(): which files give which tokenizer, what is refused by name, and the vectors that another engine
// published for GGUF vocabularies.
#include "runtime/text/tokenizer/tokenizer.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/formats/gguf_vocabulary.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kFairy = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model";
const fs::path kShared = SLIPSTREAM_SOURCE_DIR "/../shared/data";

class TokenizerFiles : public testing::Test {
protected:
    void SetUp() override {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        folder_ = fs::temp_directory_path() / fmt::format("slipstream_tokenizer_{}_{}", test->name(), ::getpid());
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    [[nodiscard]] fs::path write(const std::string& name, const std::string& content) const {
        std::ofstream(folder_ / name, std::ios::binary) << content;
        return folder_ / name;
    }
    fs::path folder_;
};

TokenizerSource fairy_source() {
    TokenizerSource source;
    source.sentencepiece_model = kFairy;
    return source;
}

std::string refusal(const TokenizerSource& source) {
    try {
        (void)make_tokenizer(source);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

GgufVocabulary small_gguf() {
    GgufVocabulary vocabulary;
    vocabulary.model = "llama";
    vocabulary.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "<|eot_id|>", "x y"};
    vocabulary.scores = {0, 0, 0, -1, -2, -3, 0, 0};
    vocabulary.types = {2, 3, 3, 1, 1, 1, 3, 4};
    vocabulary.bos_id = 1;
    vocabulary.eos_id = 2;
    return vocabulary;
}

TokenizerSource gguf_source(GgufVocabulary vocabulary) {
    TokenizerSource source;
    source.gguf = std::move(vocabulary);
    return source;
}

TEST(Tokenizer, ReadsASentencePieceModel) {
    const auto tokenizer = make_tokenizer(fairy_source());
    EXPECT_EQ(tokenizer->vocab_size(), 4096);
    EXPECT_TRUE(tokenizer->adds_bos());
    const std::string text = "Once upon a time, in a dark forest.\n  Two spaces — and 🧚.";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialTokens::AsText)), text);
}

TEST(Tokenizer, TheConfigurationOverrulesTheModelsBos) {
    TokenizerSource source = fairy_source();
    source.add_bos = false;
    EXPECT_FALSE(make_tokenizer(source)->adds_bos());
    source.bos_id = 2;
    EXPECT_EQ(make_tokenizer(source)->bos_id(), 2);
    source.bos_id = 4096;
    EXPECT_THAT(refusal(source), HasSubstr("BOS id 4096"));
}

TEST(Tokenizer, ReadsAGgufVocabulary) {
    const auto tokenizer = make_tokenizer(gguf_source(small_gguf()));
    EXPECT_EQ(tokenizer->kind(), "SentencePiece BPE");
    EXPECT_TRUE(tokenizer->adds_bos());  // the default of this kind
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2, 6));
    EXPECT_THAT(tokenizer->encode("a ab", SpecialTokens::AsText), ElementsAre(5, 5, 0));
    EXPECT_THAT(tokenizer->encode("a<|eot_id|>a", SpecialTokens::Parse), ElementsAre(5, 6, 5));
    EXPECT_THAT(tokenizer->encode("ax y", SpecialTokens::AsText),
                ElementsAre(5, 7));  // user-defined, spelt with a space
    GgufVocabulary changed = small_gguf();
    changed.add_bos = false;
    changed.add_space_prefix = false;
    changed.eot_id = 4;
    const auto other = make_tokenizer(gguf_source(changed));
    EXPECT_FALSE(other->adds_bos());
    EXPECT_FALSE(other->adds_space_prefix());
    EXPECT_THAT(other->encode("a a", SpecialTokens::AsText), ElementsAre(4, 5));
    EXPECT_THAT(other->end_tokens(), ElementsAre(2, 4, 6));
}

TEST(Tokenizer, RefusesABrokenGgufVocabulary) {
    const auto message = [](auto change) {
        GgufVocabulary vocabulary = small_gguf();
        change(vocabulary);
        return refusal(gguf_source(vocabulary));
    };
    EXPECT_THAT(message([](GgufVocabulary& v) { v.scores.pop_back(); }), HasSubstr("8 tokens, 7 scores"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.types.pop_back(); }), HasSubstr("7 types"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.types[4] = 9; }), HasSubstr("type 9"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.bos_id = 8; }), HasSubstr("BOS id 8"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.types[0] = 1; }), HasSubstr("some texts have no ids"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.types[4] = 6; }), HasSubstr("byte token"));
    EXPECT_THAT(message([](GgufVocabulary& v) { v.tokens[4].clear(); }), HasSubstr("empty"));
}

TEST(Tokenizer, RefusesOtherKindsByName) {
    const std::pair<std::string, std::string> kinds[] = {{"rwkv", "RWKV"}, {"bert", "WordPiece"}, {"plamo", "plamo"}};
    for (const auto& [model, name] : kinds) {
        GgufVocabulary vocabulary = small_gguf();
        vocabulary.model = model;
        EXPECT_THAT(refusal(gguf_source(vocabulary)), HasSubstr(name));
        EXPECT_THROW((void)make_tokenizer(gguf_source(vocabulary)), Unsupported);
    }
    TokenizerSource source;
    source.vocab_json = "dir/vocab.json";
    EXPECT_THAT(refusal(source), HasSubstr("no merges.txt"));
    EXPECT_THAT(refusal({}), HasSubstr("has no tokenizer"));
}

TEST(Tokenizer, ReadsAGgufUnigramVocabulary) {
    GgufVocabulary vocabulary = small_gguf();
    vocabulary.model = "t5";
    const auto tokenizer = make_tokenizer(gguf_source(vocabulary));
    EXPECT_EQ(tokenizer->kind(), "SentencePiece unigram");
    EXPECT_FALSE(tokenizer->adds_bos());  // the defaults of this kind
    EXPECT_TRUE(tokenizer->adds_eos());
    EXPECT_EQ(tokenizer->eos_id(), 2);
    EXPECT_THAT(tokenizer->encode("  a   a ", SpecialTokens::AsText), ElementsAre(5, 5));
    vocabulary.remove_extra_whitespaces = false;
    EXPECT_THAT(make_tokenizer(gguf_source(vocabulary))->encode("a  a", SpecialTokens::AsText), ElementsAre(5, 3, 5));
    vocabulary.precompiled_charsmap = "??";
    EXPECT_THAT(refusal(gguf_source(vocabulary)), HasSubstr("rules"));
}

TEST(Tokenizer, PutsBosInFrontOfAPromptOnce) {
    const auto tokenizer = make_tokenizer(gguf_source(small_gguf()));
    EXPECT_THAT(tokenizer->encode_prompt("a", SpecialTokens::Parse), ElementsAre(1, 5));
    EXPECT_THAT(tokenizer->encode_prompt("<s>a", SpecialTokens::Parse), ElementsAre(1, 5));
    EXPECT_THAT(tokenizer->encode_prompt("", SpecialTokens::Parse), ElementsAre(1));
    GgufVocabulary vocabulary = small_gguf();
    vocabulary.add_bos = false;
    EXPECT_THAT(make_tokenizer(gguf_source(vocabulary))->encode_prompt("a", SpecialTokens::AsText), ElementsAre(5));
}

TEST(Tokenizer, GivesUpATextWhenItIsInterrupted) {
    GgufVocabulary by_score = small_gguf();
    by_score.model = "t5";
    GgufVocabulary whole_text = small_gguf();  // a piece with a space inside: the text is merged as one word
    whole_text.tokens[7] = "a\u2581a";
    whole_text.types[7] = 1;
    GgufVocabulary by_bytes = small_gguf();
    by_bytes.model = "gpt2";
    by_bytes.tokens = {"a", "aa"};
    by_bytes.types.clear();
    by_bytes.scores.clear();
    by_bytes.merges = {"a a"};
    by_bytes.bos_id = by_bytes.eos_id = std::nullopt;
    std::atomic<bool> stop = false;
    for (const GgufVocabulary& vocabulary : {small_gguf(), by_score, whole_text, by_bytes}) {
        const auto tokenizer = make_tokenizer(gguf_source(vocabulary));
        const std::vector<TokenId> ids = tokenizer->encode("a a", SpecialTokens::AsText);
        stop = false;
        EXPECT_EQ(tokenizer->encode("a a", SpecialTokens::AsText, &stop), ids);
        stop = true;
        for (const SpecialTokens special : {SpecialTokens::AsText, SpecialTokens::Parse}) {
            EXPECT_THROW((void)tokenizer->encode("a a", special, &stop), Interrupted) << tokenizer->kind();
            EXPECT_THROW((void)tokenizer->encode_prompt("a a", special, &stop), Interrupted) << tokenizer->kind();
        }
        EXPECT_THROW((void)tokenizer->encode_prompt({.bytes = "a a", .said = {{0, 1}}}, &stop), Interrupted)
            << tokenizer->kind();
    }
}

TEST_F(TokenizerFiles, TakesTheJsonWhereThereAreBoth) {
    TokenizerSource source = fairy_source();
    source.tokenizer_json = write("tokenizer.json", "{}");
    EXPECT_THAT(refusal(source), HasSubstr("tokenizer.json: there is no model"));
}

TEST_F(TokenizerFiles, TellsRanksFromAModel) {
    TokenizerSource source;
    source.sentencepiece_model = write("tokenizer.model", "IQ== 0\nIg== 1\nIw== 2\n");
    EXPECT_THAT(refusal(source), HasSubstr("tiktoken ranks for 3 tokens"));
    source.sentencepiece_model = write("other.model", "not a model at all\n");
    EXPECT_THAT(refusal(source), HasSubstr("other.model"));
    source.sentencepiece_model = folder_ / "absent.model";
    EXPECT_THROW((void)make_tokenizer(source), IoError);
}

TEST_F(TokenizerFiles, AppendsTheTokensThatTheConfigurationAdds) {
    TokenizerSource source = fairy_source();
    source.tokenizer_config_json = write("tokenizer_config.json", R"({"added_tokens_decoder": {
        "1": {"content": "<s>", "special": true},
        "4099": {"content": "<|end|>", "special": true},
        "4097": {"content": "magic word", "special": false}}})");
    const auto tokenizer = make_tokenizer(source);
    EXPECT_EQ(tokenizer->vocab_size(), 4100);
    EXPECT_EQ(tokenizer->token_kind(4096), TokenKind::Unused);
    EXPECT_EQ(tokenizer->token_kind(4097), TokenKind::UserDefined);
    EXPECT_EQ(tokenizer->token_kind(4099), TokenKind::Control);
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2, 4099));
    EXPECT_EQ(tokenizer->encode("the<|end|>", SpecialTokens::Parse).back(), 4099);
    EXPECT_EQ(tokenizer->encode("the magic word", SpecialTokens::AsText).back(), 4097);
    EXPECT_EQ(tokenizer->token_bytes(4097), "magic word");
}

TEST_F(TokenizerFiles, RefusesABrokenConfigurationOfAddedTokens) {
    TokenizerSource source = fairy_source();
    const auto message = [&](const std::string& json) {
        source.tokenizer_config_json = write("tokenizer_config.json", json);
        return refusal(source);
    };
    EXPECT_EQ(message("{}"), "accepted");
    EXPECT_THAT(message("{"), HasSubstr("tokenizer_config.json"));
    EXPECT_THAT(message("[]"), HasSubstr("tokenizer_config.json"));
    EXPECT_THAT(message(R"({"added_tokens_decoder": 3})"), HasSubstr("is not an object"));
    EXPECT_THAT(message(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"), HasSubstr("'x'"));
    EXPECT_THAT(message(R"({"added_tokens_decoder": {"999999999999": {"content": "a"}}})"), HasSubstr("999999999999"));
    EXPECT_THAT(message(R"({"added_tokens_decoder": {"4096": {"special": true}}})"), HasSubstr("content"));
    EXPECT_THAT(message(R"({"added_tokens_decoder": {"4096": {"content": ""}}})"), HasSubstr("empty"));
}

/// Texts of an .inp file against the ids of its .out file, and back; returns how many there were.
int compare_with_vectors(const Tokenizer& tokenizer, const fs::path& stem) {
    std::ifstream input(stem.string() + ".inp", std::ios::binary);
    const std::string texts{std::istreambuf_iterator<char>(input), {}};
    std::ifstream output(stem.string() + ".out");
    const std::string separator = "\n__ggml_vocab_test__\n";
    int n_texts = 0;
    for (std::size_t begin = 0; begin < texts.size(); ++n_texts) {
        const std::size_t end = std::min(texts.find(separator, begin), texts.size());
        const std::string text = texts.substr(begin, end - begin);
        begin = end + separator.size();
        std::string line;
        EXPECT_TRUE(std::getline(output, line)) << stem;
        std::istringstream ids(line);
        const std::vector<TokenId> expected{std::istream_iterator<TokenId>(ids), {}};
        EXPECT_EQ(tokenizer.encode(text, SpecialTokens::AsText), expected) << stem << ": " << text;
        // What has no token is dropped.
        if (stem.string().find("deepseek") == std::string::npos) {
            EXPECT_EQ(tokenizer.decode(expected), text) << stem;
        }
    }
    return n_texts;
}

/// The vocabularies of a folder that have vectors beside them, as llama.cpp's folder "models" holds them.
std::vector<fs::path> vocabularies_with_vectors(const fs::path& folder) {
    std::vector<fs::path> found;
    if (!fs::is_directory(folder)) return found;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".gguf" && fs::exists(entry.path().string() + ".out"))
            found.push_back(entry.path());
    return found;
}

// Also of DeepSeek, DeepSeek Coder, Falcon, MPT, Refact and StarCoder, where SLIPSTREAM_VOCABULARIES names a folder
// with their files.
TEST(Tokenizer, GivesThePublishedIdsOfGgufVocabularies) {
    std::vector<fs::path> files = vocabularies_with_vectors(kShared / "tokenizers");
    if (const char* more = std::getenv("SLIPSTREAM_VOCABULARIES"); more != nullptr) {
        const std::vector<fs::path> named = vocabularies_with_vectors(more);
        ASSERT_FALSE(named.empty()) << more;
        files.insert(files.end(), named.begin(), named.end());
    }
    if (files.empty()) GTEST_SKIP() << "no vocabulary with vectors is there";
    for (const fs::path& gguf : files) {
        const std::string name = gguf.stem().string().substr(std::string("ggml-vocab-").size());
        const auto tokenizer = make_tokenizer(gguf_source(read_gguf_vocabulary(gguf)));
        EXPECT_EQ(compare_with_vectors(*tokenizer, gguf), 46) << name;
        if (name == "llama-spm" || name == "gpt-2") {
            EXPECT_EQ(tokenizer->adds_bos(), name == "llama-spm");
        }
        if (name == "phi-3") {
            EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(32000, 32007));
        }
    }
}

TEST(Tokenizer, GivesThePublishedIdsOfByteLevelDirectories) {
    const fs::path folder = kShared / "tokenizers";
    if (!fs::exists(folder / "qwen2")) GTEST_SKIP() << folder << " is not there";
    TokenizerSource llama3;
    llama3.sentencepiece_model = folder / "llama3/tokenizer.model";
    const auto ranks = make_tokenizer(llama3);
    EXPECT_EQ(compare_with_vectors(*ranks, folder / "ggml-vocab-llama-bpe.gguf"), 46);
    EXPECT_EQ(ranks->vocab_size(), 128256);
    EXPECT_EQ(ranks->bos_id(), 128000);
    EXPECT_TRUE(ranks->adds_bos());
    EXPECT_THAT(ranks->end_tokens(), ElementsAre(128001, 128008, 128009));
    EXPECT_THAT(ranks->encode("<|start_header_id|>", SpecialTokens::Parse), ElementsAre(128006));
    EXPECT_EQ(ranks->piece(128255), "<|reserved_special_token_247|>");
    TokenizerSource qwen2;
    qwen2.vocab_json = folder / "qwen2/vocab.json";
    qwen2.merges_txt = folder / "qwen2/merges.txt";
    qwen2.tokenizer_config_json = folder / "qwen2/tokenizer_config.json";
    const auto words = make_tokenizer(qwen2);
    EXPECT_EQ(compare_with_vectors(*words, folder / "ggml-vocab-qwen2.gguf"), 46);
    EXPECT_FALSE(words->adds_bos());
    EXPECT_EQ(words->eos_id(), 151645);
    EXPECT_THAT(words->end_tokens(), ElementsAre(151643, 151645));
    EXPECT_EQ(words->piece(279), "\u0120the");
    EXPECT_EQ(words->token_bytes(279), " the");
}

}  // namespace
}  // namespace slipstream
