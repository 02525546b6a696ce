#include "tools/machine/tokenizer_files.h"

#include <array>
#include <fstream>
#include <string_view>

#include "runtime/formats/gguf_vocabulary.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

bool is_gguf(const fs::path& path) {
    if (!fs::is_regular_file(path)) return false;  // opening a pipe would wait for its writer
    std::ifstream file(path, std::ios::binary);
    std::array<char, 4> magic{};
    return file.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) == "GGUF";
}

fs::path if_there(fs::path path) {
    return fs::exists(path) ? std::move(path) : fs::path();
}

bool has_weights(const fs::path& directory) {
    return fs::exists(directory / "model.safetensors") || fs::exists(directory / "model.safetensors.index.json");
}

/// Returns the tokenizer files of a directory without weights; paths of missing files are empty.
TokenizerSource files_of(const fs::path& directory) {
    TokenizerSource source;
    source.tokenizer_json = if_there(directory / "tokenizer.json");
    source.tekken_json = if_there(directory / "tekken.json");
    source.sentencepiece_model = if_there(directory / "tokenizer.model");
    source.vocab_json = if_there(directory / "vocab.json");
    source.merges_txt = if_there(directory / "merges.txt");
    source.tokenizer_config_json = if_there(directory / "tokenizer_config.json");
    return source;
}

/// Returns one tokenizer file with the files next to it that belong to it; other files of the directory are ignored.
TokenizerSource file_alone(const fs::path& path) {
    TokenizerSource source;
    const fs::path directory = path.parent_path();
    const std::string name = path.filename().string();
    if (name == "tokenizer.json") source.tokenizer_json = path;
    if (name == "tekken.json") source.tekken_json = path;
    if (name == "vocab.json") {
        source.vocab_json = path;
        source.merges_txt = if_there(directory / "merges.txt");
    }
    if (name == "tokenizer.model" || path.extension() == ".tiktoken") {
        source.sentencepiece_model = path;
        return source;  // this file is complete by itself
    }
    source.tokenizer_config_json = if_there(directory / "tokenizer_config.json");
    return source;
}

bool is_found(const TokenizerSource& source) {
    return !source.tokenizer_json.empty() || !source.tekken_json.empty() || !source.sentencepiece_model.empty() ||
           !source.vocab_json.empty();
}

}  // namespace

TokenizerSource find_tokenizer_source(const fs::path& path) {
    TokenizerSource source;
    if (fs::is_directory(path)) {
        // With weights it is a model, whose config.json names BOS.
        if (has_weights(path)) return ModelFiles::open(path)->tokenizer_source();
        source = files_of(path);
    } else if (is_gguf(path)) {
        source.gguf = read_gguf_vocabulary(path);
        return source;
    } else if (fs::is_regular_file(path)) {
        source = file_alone(path);
    }
    return is_found(source) ? source : ModelFiles::open(path)->tokenizer_source();
}

std::optional<std::string> pre_tokenizer_note(const TokenizerSource& source) {
    if (!source.gguf || source.gguf->model != "gpt2" || !source.gguf->pre_tokenizer.empty()) return std::nullopt;
    return "the file does not name its pre-tokenizer (tokenizer.ggml.pre): text is cut into words by the oldest rule, "
           "and the model may have learnt another; a newer file of it says which";
}

}  // namespace slipstream::tools
