// Which tokenizer a model's files hold, and what is refused by name.
#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/sentencepiece_bpe.h"
#include "runtime/tokenizer/sentencepiece_model.h"

namespace slipstream {

namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view kind) {
    throw Unsupported(
        fmt::format("{}: the tokenizer is {}; this version reads SentencePiece BPE (tokenizer.model, or GGUF 'llama')",
                    where, kind));
}

std::string_view kind_of_gguf_model(std::string_view model) {
    if (model == "gpt2") return "byte-level BPE";
    if (model == "t5") return "SentencePiece unigram";
    if (model == "bert") return "WordPiece";
    if (model == "rwkv") return "the RWKV trie";
    return "of a kind unknown here";
}

/// Llama 3's original directories have a tokenizer.model that is a list of lines "<base64> <rank>".
bool is_tiktoken(std::string_view bytes) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() || line.size() > 4096) return false;
    const auto is_base64 = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '+' || c == '/' ||
               c == '=';
    };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return std::ranges::all_of(line.substr(0, space), is_base64) &&
           std::ranges::all_of(line.substr(space + 1), is_digit);
}

std::unique_ptr<Tokenizer> from_gguf(const GgufVocabulary& vocabulary) {
    if (vocabulary.model != "llama")
        refuse(fmt::format("tokenizer.ggml.model '{}'", vocabulary.model), kind_of_gguf_model(vocabulary.model));
    return std::make_unique<SentencePieceBpe>(sentencepiece_from_gguf(vocabulary));
}

std::unique_ptr<Tokenizer> from_sentencepiece(const TokenizerSource& source) {
    const MappedFile file(source.sentencepiece_model);
    const std::string name = source.sentencepiece_model.string();
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (is_tiktoken(bytes)) refuse(name, "byte-level BPE (tiktoken ranks)");
    SentencePieceModel model = parse_sentencepiece_model(bytes, name);
    if (!source.tokenizer_config_json.empty()) append_added_tokens(source.tokenizer_config_json, model);
    if (source.bos_id) {
        if (*source.bos_id < 0 || *source.bos_id >= std::ssize(model.pieces))
            throw FormatError(fmt::format("{}: holds {} tokens and the configuration names BOS id {}", name,
                                          model.pieces.size(), *source.bos_id));
        model.bos_id = static_cast<TokenId>(*source.bos_id);
    }
    model.adds_bos = source.add_bos.value_or(true) && model.bos_id.has_value();
    return std::make_unique<SentencePieceBpe>(std::move(model));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source) {
    if (source.gguf) return from_gguf(*source.gguf);
    if (!source.sentencepiece_model.empty()) return from_sentencepiece(source);
    if (!source.vocab_json.empty()) refuse(source.vocab_json.string(), "byte-level BPE (vocab.json and merges.txt)");
    if (!source.tokenizer_json.empty())
        refuse(source.tokenizer_json.string(), "byte-level BPE or another that only tokenizer.json describes");
    throw FormatError(
        "the model comes without a tokenizer: neither tokenizer.model nor GGUF vocabulary was found; add "
        "tokenizer.model");
}

}  // namespace slipstream
