#include "runtime/text/tokenizer/character_bpe_files.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/gguf_bpe.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/word_models.h"

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
    for (std::size_t i = 0; i < n; ++i) {
        const auto id = static_cast<TokenId>(i);
        const std::string& spelling = source.tokens[i];
        if (spelling.empty()) throw FormatError(fmt::format("{}: token {} is empty", kName, i));
        TokenKind kind = source.types.empty() ? TokenKind::Normal : kind_of_type(source.types[i], i, kName);
        const auto byte = byte_of_piece(spelling);
        if (byte && kind == TokenKind::Normal) kind = TokenKind::Byte;
        tokens.set(id, spelling, kind, kName);
        vocabulary.index.insert(spelling, id, [&](TokenId other) { return tokens.spelling(other); });
        if (kind == TokenKind::Control || kind == TokenKind::UserDefined) {
            added.push_back({.content = spelling, .id = id, .special = kind == TokenKind::Control});
        } else if (kind == TokenKind::Byte && byte) {
            tokens.set_bytes(id, std::string(1, static_cast<char>(*byte)));
        } else {
            tokens.set_bytes(id, replace_literal(spelling, kSpaceMark, " ", max_normalised_bytes(spelling.size())));
        }
    }
    return vocabulary;
}

}  // namespace

std::unique_ptr<Tokenizer> character_bpe_from_gguf(const PlainVocabulary& source) {
    PipelineParts parts;
    std::vector<NormalizerStep> steps;
    steps.emplace_back(ReplaceStep{std::string(" "), std::string(kSpaceMark)});
    parts.normalizer = TextNormalizer(std::move(steps));
    parts.pre_tokenizer.emplace_back(
        SplitStep{TextPattern(to_pcre2("[^\\n]+|\\n+", PatternDialect::Oniguruma, kName), kName)});
    std::vector<AddedToken> added;
    IndexedVocabulary vocabulary = read_tokens(source, added);
    const auto id_of = [&](const std::optional<std::int64_t>& id, std::string_view what) {
        return gguf_token(id, what, vocabulary);
    };
    const std::optional<TokenId> unk = id_of(source.unk_id, "unknown");
    MergeTable merges = gguf_merges(source, vocabulary);
    parts.model = std::make_unique<CharacterBpe>(
        *vocabulary.tokens, vocabulary.index, std::move(merges),
        CharacterBpe::Options{.unk = unk, .byte_fallback = true, .fuse_unk = true, .whole_newlines = true}, kName);
    const auto bos = id_of(source.bos_id, "BOS");
    const auto eos = id_of(source.eos_id, "EOS");
    if (const auto eot = id_of(source.eot_id, "EOT")) parts.end_tokens.push_back(*eot);
    parts.added_tokens = place_added_tokens(std::move(added), vocabulary, kName);
    if (unk) vocabulary.tokens->set_kind(*unk, TokenKind::Unknown);
    parts.vocabulary = std::move(vocabulary.tokens);
    // BOS is added if the key add_bos_token is missing: it is there and true in all published files, and the model
    // needs BOS.
    set_text_ends({.add_eos = source.add_eos.value_or(false)}, {.before = bos, .after = eos},
                  {.add_bos = source.add_bos.value_or(true)}, parts, kName);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
