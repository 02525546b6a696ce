#include "tools/tokenizer_files.h"

#include <array>
#include <fstream>
#include <string_view>

#include "runtime/formats/gguf_vocabulary.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

bool is_gguf(const fs::path& path) {
    if (!fs::is_regular_file(path)) return false;  // a pipe would be waited for
    std::ifstream file(path, std::ios::binary);
    std::array<char, 4> magic{};
    return file.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace

TokenizerSource find_tokenizer_source(const fs::path& path) {
    TokenizerSource source;
    if (fs::is_directory(path)) {
        if (fs::exists(path / "config.json")) return ModelFiles::open(path)->tokenizer_source();
        if (fs::exists(path / "tokenizer.model")) source.sentencepiece_model = path / "tokenizer.model";
    } else if (path.filename() == "tokenizer.model") {
        source.sentencepiece_model = path;
    } else if (is_gguf(path)) {
        source.gguf = read_gguf_vocabulary(path);
    }
    const bool found = source.gguf || !source.sentencepiece_model.empty();
    return found ? source : ModelFiles::open(path)->tokenizer_source();
}

}  // namespace slipstream::tools
