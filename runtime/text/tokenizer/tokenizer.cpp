// Which tokenizer a model's files hold, and what is refused by name.
#include "runtime/text/tokenizer/tokenizer.h"

#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/formats/printable.h"
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

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string_view kind_of_gguf_model(std::string_view model) {
    if (model == "bert") return "WordPiece";
    if (model == "rwkv") return "the RWKV trie";
    return "of a kind unknown here";
}

std::unique_ptr<Tokenizer> from_gguf(const GgufVocabulary& vocabulary) {
    if (vocabulary.model == "gpt2") return byte_bpe_from_gguf(vocabulary);
    if (vocabulary.model == "llama" || vocabulary.model == "t5")
        return std::make_unique<SentencePieceTokenizer>(sentencepiece_from_gguf(vocabulary));
    throw Unsupported(
        fmt::format("tokenizer.ggml.model '{}': the tokenizer is {}; this version reads 'llama', 't5' and 'gpt2'",
                    printable(vocabulary.model), kind_of_gguf_model(vocabulary.model)));
}

std::unique_ptr<Tokenizer> from_sentencepiece(const TokenizerSource& source, std::string_view bytes,
                                              const TokenizerSettings& settings) {
    const std::string name = source.sentencepiece_model.string();
    SentencePieceModel model = parse_sentencepiece_model(bytes, name);
    append_added_tokens(settings.added_tokens, source.tokenizer_config_json.string(), model);
    if (source.bos_id) {
        if (*source.bos_id < 0 || *source.bos_id >= std::ssize(model.pieces))
            throw FormatError(fmt::format("{}: holds {} tokens and the configuration names BOS id {}", name,
                                          model.pieces.size(), *source.bos_id));
        model.bos_id = static_cast<TokenId>(*source.bos_id);
    }
    model.adds_bos = source.add_bos.value_or(true) && model.bos_id.has_value();
    model.adds_eos = settings.add_eos.value_or(false) && model.eos_id.has_value();
    return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source) {
    if (source.gguf) return from_gguf(*source.gguf);
    const TokenizerSettings settings = read_tokenizer_settings(source.tokenizer_config_json);
    const TextEnds ends{.bos_id = source.bos_id, .add_bos = source.add_bos};
    // What tokenizer.json says is what the model was trained with; the others are where it was made from.
    if (!source.tokenizer_json.empty()) {
        const MappedFile file(source.tokenizer_json);
        return parse_tokenizer_json(text_of(file), source.tokenizer_json.string(), settings, ends);
    }
    if (!source.sentencepiece_model.empty()) {
        const MappedFile file(source.sentencepiece_model);
        const std::string name = source.sentencepiece_model.string();
        if (!is_tiktoken(text_of(file))) return from_sentencepiece(source, text_of(file), settings);
        const TiktokenEncoding encoding = published_tiktoken_encoding(count_tiktoken_ranks(text_of(file), name), name);
        return parse_tiktoken(text_of(file), name, encoding, settings, ends);
    }
    if (!source.vocab_json.empty()) {
        if (source.merges_txt.empty())
            throw FormatError(fmt::format("{}: there is no merges.txt beside it; add it, or tokenizer.json",
                                          source.vocab_json.string()));
        const MappedFile vocabulary(source.vocab_json);
        const MappedFile merges(source.merges_txt);
        return parse_vocab_merges({.vocab_json = text_of(vocabulary),
                                   .merges_txt = text_of(merges),
                                   .vocab_name = source.vocab_json.string(),
                                   .merges_name = source.merges_txt.string()},
                                  settings, ends);
    }
    throw FormatError(
        "the model comes without a tokenizer: none of tokenizer.json, tokenizer.model, vocab.json with merges.txt and "
        "a "
        "GGUF vocabulary was found; add one");
}

}  // namespace slipstream
