// Every text of the public data sets and books comes back as it was, for every published tokenizer that is found; and
// the streaming form gives the same text.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/formats/gguf_vocabulary.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

const fs::path kData = SLIPSTREAM_SOURCE_DIR "/../shared/data";

std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void collect_texts(const nlohmann::json& json, std::vector<std::string>& texts) {
    if (json.is_string()) texts.push_back(json.get<std::string>());
    if (json.is_structured())
        for (const auto& value : json) collect_texts(value, texts);
}

/// All strings in the JSON lines, and the books as they are.
std::vector<std::string> all_texts() {
    std::vector<std::string> texts;
    for (const char* folder : {"specbench", "evals", "books"}) {
        for (const auto& entry : fs::directory_iterator(kData / folder)) {
            if (entry.path().extension() == ".txt") texts.push_back(content_of(entry.path()));
            if (entry.path().extension() != ".jsonl") continue;
            std::ifstream file(entry.path());
            for (std::string line; std::getline(file, line);) collect_texts(nlohmann::json::parse(line), texts);
        }
    }
    return texts;
}

std::vector<std::pair<std::string, TokenizerSource>> all_tokenizers() {
    const fs::path folder = kData / "tokenizers";
    std::vector<std::pair<std::string, TokenizerSource>> sources;
    for (const char* name : {"gpt-2", "llama-spm", "phi-3"}) {
        TokenizerSource source;
        source.gguf = read_gguf_vocabulary(folder / (std::string("ggml-vocab-") + name + ".gguf"));
        sources.emplace_back(name, source);
    }
    TokenizerSource llama2, llama3, qwen2;
    llama2.sentencepiece_model = folder / "llama2/tokenizer.model";
    llama3.sentencepiece_model = folder / "llama3/tokenizer.model";
    qwen2.vocab_json = folder / "qwen2/vocab.json";
    qwen2.merges_txt = folder / "qwen2/merges.txt";
    qwen2.tokenizer_config_json = folder / "qwen2/tokenizer_config.json";
    sources.emplace_back("llama2", llama2);
    sources.emplace_back("llama3", llama3);
    sources.emplace_back("qwen2", qwen2);
    return sources;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    StreamingDetokenizer detokenizer(tokenizer, StreamingDetokenizer::Start::OfText);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    return text += detokenizer.finish();
}

TEST(TokenizerRoundTrip, GivesEveryTextBack) {
    if (!fs::exists(kData / "tokenizers/qwen2")) GTEST_SKIP() << kData << " is not there";
    const std::vector<std::string> texts = all_texts();
    ASSERT_GT(texts.size(), 5000U);
    for (const auto& [name, source] : all_tokenizers()) {
        const auto tokenizer = make_tokenizer(source);
        for (const std::string& text : texts) {
            const std::vector<TokenId> ids = tokenizer->encode(text, SpecialTokens::AsText);
            const std::string back = tokenizer->decode(ids);
            ASSERT_TRUE(back == text) << name << ": " << text.substr(0, 200) << "\n--\n" << back.substr(0, 200);
            if (text.size() < 100'000) {
                ASSERT_TRUE(streamed(*tokenizer, ids) == text) << name << ": " << text.substr(0, 200);
            }
        }
    }
}

}  // namespace
}  // namespace slipstream
