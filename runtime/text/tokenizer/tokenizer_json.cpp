#include "runtime/text/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/json_bounded.h"
#include "runtime/text/tokenizer/json_stream.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/pipeline_assembly.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/tokenizer_json_model.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"

namespace slipstream {

namespace {

constexpr std::array<std::string_view, 5> kSmallParts = {"added_tokens", "normalizer", "pre_tokenizer",
                                                         "post_processor", "decoder"};

/// The file cut into its parts: the model with its large fields as text, and the rest as JSON.
struct FileParts {
    std::optional<JsonModelFields> model;
    nlohmann::json small;

    /// null where the file does not have it.
    [[nodiscard]] nlohmann::json part(const char* key) const { return small.value(key, nlohmann::json()); }
};

FileParts cut(std::string_view text, const std::string& name) {
    FileParts parts;
    std::string small = "{";
    JsonStream json(text, name);
    if (json.peek() != JsonStream::Kind::Object) json.fail("no object");
    json.enter_object();
    while (const auto key = json.next_key()) {
        if (*key == "model") {
            parts.model = read_model_fields(json, name);
            continue;
        }
        const auto* const known = std::ranges::find(kSmallParts, *key);
        const std::string_view value = json.raw_value();
        if (known == kSmallParts.end()) continue;  // version, truncation, padding: nothing to do with ids
        if (small.size() > 1) small += ',';
        small.append("\"").append(*known).append("\":").append(value);
    }
    json.end();
    if (!parts.model) throw FormatError(fmt::format("{}: there is no model in it; this is no tokenizer.json", name));
    parts.small = parse_json_object(small + "}", name);
    return parts;
}

TokenSpelling spelling_of(const std::vector<PreTokenizerStep>& steps) {
    for (const PreTokenizerStep& step : steps)
        if (std::holds_alternative<ByteAlphabetStep>(step)) return TokenSpelling::ByteAlphabet;
    return TokenSpelling::Characters;
}

std::string decoded(std::string_view spelling, const TokenDecoding& decoding) {
    std::string text(spelling);
    for (const auto& [what, content] : decoding.replacements)
        text = replace_literal(text, what, content, 16 * spelling.size() + 256);
    return text;
}

/// What each token of the model prints.
void set_bytes(TokenVocabulary& vocabulary, const TokenDecoding& decoding, TokenSpelling spelling,
               const std::string& name) {
    if (spelling == TokenSpelling::ByteAlphabet) {  // the model's reader has set them
        if (!decoding.byte_alphabet && (decoding.byte_fallback || !decoding.replacements.empty()))
            throw Unsupported(
                fmt::format("{}: a ByteLevel pre_tokenizer with another decoder is not known to this version", name));
        return;
    }
    if (decoding.byte_alphabet) {
        set_bytes_by_alphabet(vocabulary);
        return;
    }
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        const std::string_view text = vocabulary.spelling(id);
        if (const auto byte = decoding.byte_fallback ? byte_of_piece(text) : std::nullopt) {
            vocabulary.set_bytes(id, std::string(1, static_cast<char>(*byte)));
            vocabulary.set_kind(id, TokenKind::Byte);
        } else if (!decoding.replacements.empty()) {
            vocabulary.set_bytes(id, decoded(text, decoding));
        }
    }
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const TokenizerSettings& settings, const TextEnds& ends) {
    const FileParts file = cut(text, name);
    PipelineParts parts;
    parts.normalizer = TextNormalizer(read_normalizer(file.part("normalizer"), name));
    parts.pre_tokenizer = read_pre_tokenizer(file.part("pre_tokenizer"), name);
    const TokenSpelling spelling = spelling_of(parts.pre_tokenizer);
    const TokenDecoding decoding = read_decoder(file.part("decoder"), name);
    JsonModel model = read_json_model(*file.model, spelling, name);
    if (model.may_cut_at_spaces)
        parts.pre_tokenizer.emplace_back(
            SplitStep{TextPattern(to_pcre2("▁*[^▁]+|▁+", PatternDialect::Oniguruma, name), name)});
    set_bytes(*model.vocabulary.tokens, decoding, spelling, name);
    parts.adds_space_prefix = decoding.strips_space;
    parts.added_tokens = place_added_tokens(read_added_tokens(file.part("added_tokens"), name), model.vocabulary, name);
    parts.model = std::move(model.model);
    parts.vocabulary = std::move(model.vocabulary.tokens);
    set_text_ends(settings, read_post_processor(file.part("post_processor"), name), ends, parts, name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
