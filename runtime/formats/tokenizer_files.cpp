// Maps the files of a model's tokenizer while the tokenizer is made from them.
#include <deque>

#include "offload/mapped_file.h"
#include "runtime/formats/model_files.h"

namespace slipstream {

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source) {
    std::deque<MappedFile> mapped;
    const auto file = [&](const std::filesystem::path& path) -> std::optional<NamedBytes> {
        if (path.empty()) return std::nullopt;
        const auto bytes = mapped.emplace_back(path).bytes();
        return NamedBytes{{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string()};
    };
    TokenizerParts parts{.bos_id = source.bos_id, .add_bos = source.add_bos};
    if (source.gguf) {
        parts.vocabulary = &*source.gguf;
        return make_tokenizer(parts);
    }
    // Maps only the files that will be read: the first kind that exists is used.
    parts.tokenizer_config_json = file(source.tokenizer_config_json);
    parts.tokenizer_json = file(source.tokenizer_json);
    if (!parts.tokenizer_json) parts.tekken_json = file(source.tekken_json);
    if (!parts.tokenizer_json && !parts.tekken_json) parts.sentencepiece_model = file(source.sentencepiece_model);
    const bool is_found = parts.tokenizer_json || parts.tekken_json || parts.sentencepiece_model;
    if (is_found || source.vocab_json.empty()) return make_tokenizer(parts);
    parts.merges_txt = file(source.merges_txt);
    // A vocabulary without its merges is refused by name, so it is not read.
    parts.vocab_json = parts.merges_txt ? file(source.vocab_json) : NamedBytes{{}, source.vocab_json.string()};
    return make_tokenizer(parts);
}

}  // namespace slipstream
