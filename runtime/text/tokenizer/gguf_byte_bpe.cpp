#include "runtime/text/tokenizer/gguf_byte_bpe.h"

#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_alphabet.h"
#include "runtime/text/tokenizer/byte_bpe.h"
#include "runtime/text/tokenizer/pipeline_assembly.h"
#include "runtime/text/tokenizer/pre_tokenizer_names.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"

namespace slipstream {

namespace {

const std::string kName = "tokenizer.ggml";

IndexedVocabulary read_tokens(const PlainVocabulary& source, std::vector<AddedToken>& added) {
    const std::size_t n = source.tokens.size();
    if (!source.types.empty() && source.types.size() != n)
        throw FormatError(fmt::format("{}: {} tokens and {} types", kName, n, source.types.size()));
    IndexedVocabulary vocabulary;
    TokenVocabulary& tokens = *vocabulary.tokens;
    vocabulary.index = StringIndex(n);
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) {
        const auto id = static_cast<TokenId>(i);
        const std::string& spelling = source.tokens[i];
        const TokenKind kind = source.types.empty() ? TokenKind::Normal : kind_of_type(source.types[i], i, kName);
        if (spelling.empty()) throw FormatError(fmt::format("{}: token {} is empty", kName, i));
        tokens.set(id, spelling, kind, kName);
        vocabulary.index.insert(spelling, id, [&](TokenId other) { return tokens.spelling(other); });
        if (kind == TokenKind::Control || kind == TokenKind::UserDefined) {
            added.push_back({.content = spelling, .id = id, .special = kind == TokenKind::Control});
            continue;
        }
        bytes.clear();
        if (append_from_alphabet(spelling, bytes)) tokens.set_bytes(id, bytes);
    }
    return vocabulary;
}

MergeTable read_merges(const PlainVocabulary& source, const IndexedVocabulary& vocabulary) {
    if (source.merges.empty()) throw FormatError(fmt::format("{}.merges: is missing or empty", kName));
    MergeReader reader(vocabulary, source.merges.size(), kName + ".merges");
    for (const std::string& merge : source.merges) reader.add(merge);
    return reader.take();
}

}  // namespace

std::unique_ptr<Tokenizer> byte_bpe_from_gguf(const PlainVocabulary& source) {
    const auto named = find_pre_tokenizer(source.pre_tokenizer);
    if (!named)
        throw Unsupported(
            fmt::format("tokenizer.ggml.pre: the pre-tokenizer '{}' is not known to this version; convert the model "
                        "anew, or take its tokenizer.json",
                        printable(source.pre_tokenizer)));
    PipelineParts parts;
    std::vector<AddedToken> added;
    IndexedVocabulary vocabulary = read_tokens(source, added);
    if (source.add_space_prefix.value_or(false)) {
        parts.pre_tokenizer.emplace_back(PrefixSpaceStep{});
        parts.adds_space_prefix = true;
    }
    for (PreTokenizerStep& step : steps_of(*named, kName)) parts.pre_tokenizer.push_back(std::move(step));
    if (named->form) {
        std::vector<NormalizerStep> steps;
        steps.emplace_back(*named->form);
        parts.normalizer = TextNormalizer(std::move(steps));
    }
    const auto spelt = [&](const std::optional<std::int64_t>& id, std::string_view what) -> std::optional<std::string> {
        if (!id || *id < 0) return std::nullopt;
        if (*id >= vocabulary.tokens->size())
            throw FormatError(
                fmt::format("{}: {} id {} where there are {} tokens", kName, what, *id, vocabulary.tokens->size()));
        return std::string(vocabulary.tokens->spelling(static_cast<TokenId>(*id)));
    };
    const auto id_of = [&](const std::optional<std::int64_t>& id, std::string_view what) -> std::optional<TokenId> {
        return spelt(id, what) ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
    };
    const auto whole_words =
        named->takes_whole_words ? ByteBpe::WholeWords::TakeFromVocabulary : ByteBpe::WholeWords::Merge;
    parts.model = std::make_unique<ByteBpe>(*vocabulary.tokens, read_merges(source, vocabulary), whole_words,
                                            id_of(source.unk_id, "unknown"), kName);
    const auto bos = id_of(source.bos_id, "BOS");
    const auto eos = id_of(source.eos_id, "EOS");
    if (const auto eot = id_of(source.eot_id, "EOT")) parts.end_tokens.push_back(*eot);
    parts.added_tokens = place_added_tokens(std::move(added), vocabulary, kName);
    parts.vocabulary = std::move(vocabulary.tokens);
    set_text_ends({.add_eos = source.add_eos.value_or(false)}, {.before = bos, .after = eos},
                  {.add_bos = source.add_bos.value_or(named->adds_bos)}, parts, kName);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
