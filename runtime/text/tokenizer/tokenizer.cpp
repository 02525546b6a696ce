// Which tokenizer a model's files hold, and what is refused by name.
#include "runtime/text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/added_tokens.h"
#include "runtime/text/tokenizer/gguf_byte_bpe.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"
#include "runtime/text/tokenizer/tiktoken_ranks.h"
#include "runtime/text/tokenizer/tokenizer_json.h"
#include "runtime/text/tokenizer/tokenizer_settings.h"
#include "runtime/text/tokenizer/vocab_merges.h"

namespace slipstream {

namespace {

std::string_view kind_of_gguf_model(std::string_view model) {
    if (model == "bert") return "WordPiece";
    if (model == "rwkv") return "the RWKV trie";
    return "of a kind unknown here";
}

std::unique_ptr<Tokenizer> from_gguf(const PlainVocabulary& vocabulary) {
    if (vocabulary.model == "gpt2") return byte_bpe_from_gguf(vocabulary);
    if (vocabulary.model == "llama" || vocabulary.model == "t5")
        return std::make_unique<SentencePieceTokenizer>(sentencepiece_from_gguf(vocabulary));
    throw Unsupported(
        fmt::format("tokenizer.ggml.model '{}': the tokenizer is {}; this version reads 'llama', 't5' and 'gpt2'",
                    printable(vocabulary.model), kind_of_gguf_model(vocabulary.model)));
}

std::unique_ptr<Tokenizer> from_sentencepiece(const TokenizerParts& parts, const TokenizerSettings& settings) {
    const auto& [bytes, name] = *parts.sentencepiece_model;
    SentencePieceModel model = parse_sentencepiece_model(bytes, name);
    append_added_tokens(settings.added_tokens, parts.tokenizer_config_json ? parts.tokenizer_config_json->name : "",
                        model);
    if (parts.bos_id) {
        if (*parts.bos_id < 0 || *parts.bos_id >= std::ssize(model.pieces))
            throw FormatError(fmt::format("{}: holds {} tokens and the configuration names BOS id {}", name,
                                          model.pieces.size(), *parts.bos_id));
        model.bos_id = static_cast<TokenId>(*parts.bos_id);
    }
    model.adds_bos = parts.add_bos.value_or(true) && model.bos_id.has_value();
    model.adds_eos = settings.add_eos.value_or(false) && model.eos_id.has_value();
    return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerParts& parts) {
    if (parts.vocabulary != nullptr) return from_gguf(*parts.vocabulary);
    const TokenizerSettings settings =
        parts.tokenizer_config_json
            ? read_tokenizer_settings(parts.tokenizer_config_json->bytes, parts.tokenizer_config_json->name)
            : TokenizerSettings();
    const TextEnds ends{.bos_id = parts.bos_id, .add_bos = parts.add_bos};
    // What tokenizer.json says is what the model was trained with; the others are where it was made from.
    if (const auto& file = parts.tokenizer_json) return parse_tokenizer_json(file->bytes, file->name, settings, ends);
    if (const auto& file = parts.sentencepiece_model) {
        if (!is_tiktoken(file->bytes)) return from_sentencepiece(parts, settings);
        const TiktokenEncoding encoding =
            published_tiktoken_encoding(count_tiktoken_ranks(file->bytes, file->name), file->name);
        return parse_tiktoken(file->bytes, file->name, encoding, settings, ends);
    }
    if (const auto& file = parts.vocab_json) {
        if (!parts.merges_txt)
            throw FormatError(
                fmt::format("{}: there is no merges.txt beside it; add it, or tokenizer.json", file->name));
        return parse_vocab_merges({.vocab_json = file->bytes,
                                   .merges_txt = parts.merges_txt->bytes,
                                   .vocab_name = file->name,
                                   .merges_name = parts.merges_txt->name},
                                  settings, ends);
    }
    throw FormatError(
        "the model comes without a tokenizer: none of tokenizer.json, tokenizer.model, vocab.json with merges.txt and "
        "a GGUF vocabulary was found; add one");
}

}  // namespace slipstream
