// Which files of a tokenizer are found: one by its name, or those of a directory that holds no model.
#include "tools/machine/tokenizer_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/temp_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;

const fs::path kTrained = SLIPSTREAM_GOLDEN_DIR "/tokenizer/trained";
const fs::path kTekken = SLIPSTREAM_GOLDEN_DIR "/tokenizer/tekken/tekken.json";

class TokenizerFiles : public testing::Test {
protected:
    void put(const std::string& golden, const std::string& name) const {
        fs::copy_file(kTrained / golden, folder_.path() / name);
    }
    [[nodiscard]] std::string kind_of(const std::string& name = "") const {
        const fs::path path = name.empty() ? folder_.path() : folder_.path() / name;
        return std::string(make_tokenizer(find_tokenizer_source(path))->kind());
    }
    TempFolder folder_;
};

TEST_F(TokenizerFiles, OfADirectory) {
    put("spm_unigram.model", "tokenizer.model");
    EXPECT_EQ(kind_of(), "SentencePiece unigram");
    put("gpt2.json", "tokenizer.json");
    EXPECT_EQ(kind_of(), "byte-level BPE");
    // What a config.json says does not matter where there are no weights.
    static_cast<void>(folder_.write("config.json", "{}"));
    EXPECT_EQ(kind_of(), "byte-level BPE");
}

TEST_F(TokenizerFiles, OneByItsName) {
    put("spm_unigram.model", "tokenizer.model");
    put("llama2.json", "tokenizer.json");
    static_cast<void>(folder_.write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})"));
    EXPECT_EQ(kind_of("tokenizer.model"), "SentencePiece unigram");
    EXPECT_EQ(kind_of("tokenizer.json"), "BPE");
    const auto source = find_tokenizer_source(folder_.path() / "tokenizer.json");
    EXPECT_TRUE(source.sentencepiece_model.empty());
    EXPECT_EQ(source.tokenizer_config_json, folder_.path() / "tokenizer_config.json");
    static_cast<void>(folder_.write("vocab.json", "{}"));
    EXPECT_TRUE(find_tokenizer_source(folder_.path() / "vocab.json").merges_txt.empty());
    static_cast<void>(folder_.write("merges.txt", ""));
    EXPECT_EQ(find_tokenizer_source(folder_.path() / "vocab.json").merges_txt, folder_.path() / "merges.txt");
}

TEST_F(TokenizerFiles, TekkenJson) {
    const auto vocab_size = [&](const std::string& name = "") {
        return make_tokenizer(find_tokenizer_source(folder_.path() / name))->vocab_size();
    };
    fs::copy_file(kTekken, folder_.path() / "tekken.json");
    const auto n_tekken = make_tokenizer({.tekken_json = kTekken})->vocab_size();
    EXPECT_EQ(vocab_size(), n_tekken);
    EXPECT_EQ(vocab_size("tekken.json"), n_tekken);
    put("spm_unigram.model", "tokenizer.model");
    EXPECT_EQ(vocab_size(), n_tekken) << "comes before tokenizer.model";
    put("gpt2.json", "tokenizer.json");
    EXPECT_NE(vocab_size(), n_tekken) << "comes after tokenizer.json";
    EXPECT_EQ(vocab_size("tekken.json"), n_tekken);
}

TEST_F(TokenizerFiles, NothingThatIsOne) {
    EXPECT_THROW(static_cast<void>(find_tokenizer_source(folder_.path())), Error);
    EXPECT_THROW(static_cast<void>(find_tokenizer_source(folder_.write("some.txt", "text"))), Error);
    EXPECT_THROW(static_cast<void>(find_tokenizer_source(folder_.path() / "absent")), Error);
}

TEST(TokenizerNotes, AFileWithoutAPreTokenizerIsToldOf) {
    TokenizerSource source;
    EXPECT_FALSE(pre_tokenizer_note(source));
    source.gguf.emplace();
    source.gguf->model = "gpt2";
    EXPECT_THAT(pre_tokenizer_note(source).value_or(""), testing::HasSubstr("tokenizer.ggml.pre"));
    source.gguf->pre_tokenizer = "qwen2";
    EXPECT_FALSE(pre_tokenizer_note(source));
    source.gguf->pre_tokenizer.clear();
    source.gguf->model = "llama";
    EXPECT_FALSE(pre_tokenizer_note(source)) << "SentencePiece has none";
}

}  // namespace
}  // namespace slipstream::tools
