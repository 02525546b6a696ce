#include "runtime/text/tokenizer/tokenizer_json_model.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_bpe.h"
#include "runtime/text/tokenizer/character_bpe.h"
#include "runtime/text/tokenizer/unigram_words.h"

namespace slipstream {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // "▁"

bool is_true(JsonStream& json) {
    const JsonStream::Kind kind = json.peek();
    if (kind != JsonStream::Kind::Boolean && kind != JsonStream::Kind::Null) json.fail("neither true nor false");
    return json.raw_value() == "true";
}

std::string text_or_nothing(JsonStream& json) {
    if (json.peek() != JsonStream::Kind::Null) return std::string(json.string());
    json.raw_value();
    return {};
}

MergeTable read_merges(std::string_view text, const IndexedVocabulary& vocabulary, std::string_view name) {
    // A merge takes ten bytes and more in the file; the table grows where that is not so.
    MergeReader reader(vocabulary, std::min<std::size_t>(text.size() / 10, 1 << 20), name);
    JsonStream json(text, name);
    json.enter_array();
    std::string left;
    while (json.next_element()) {
        if (json.peek() == JsonStream::Kind::String) {
            reader.add(json.string());
            continue;
        }
        json.enter_array();
        const auto half = [&] {
            if (!json.next_element()) json.fail("a merge that is no pair");
            return json.string();
        };
        left = half();
        reader.add(left, half());
        if (json.next_element()) json.fail("a merge that is no pair");
    }
    return reader.take();
}

std::optional<TokenId> find_unk(const JsonModelFields& fields, const IndexedVocabulary& vocabulary,
                                const std::string& name) {
    if (fields.unk_token.empty()) return std::nullopt;
    const TokenId id = vocabulary.find(fields.unk_token);
    if (id < 0)
        throw FormatError(
            fmt::format("{}: model: unk_token '{}' is not in the vocabulary", name, printable(fields.unk_token)));
    return id;
}

JsonModel read_bpe(const JsonModelFields& fields, TokenSpelling spelling, const std::string& name) {
    if (fields.vocabulary.empty() || fields.merges.empty())
        throw FormatError(fmt::format("{}: model: vocab or merges are missing", name));
    JsonModel result{.vocabulary = read_vocabulary_object(fields.vocabulary, name), .model = nullptr};
    TokenVocabulary& tokens = *result.vocabulary.tokens;
    MergeTable merges = read_merges(fields.merges, result.vocabulary, name);
    const auto unk = find_unk(fields, result.vocabulary, name);
    if (spelling == TokenSpelling::ByteAlphabet) {
        set_bytes_by_alphabet(tokens);
        const auto whole_words =
            fields.ignore_merges ? ByteBpe::WholeWords::TakeFromVocabulary : ByteBpe::WholeWords::Merge;
        result.model = std::make_unique<ByteBpe>(tokens, std::move(merges), whole_words, unk, name);
    } else {
        result.may_cut_at_spaces = !fields.ignore_merges && result.vocabulary.find(kSpaceMark) >= 0 &&
                                   !CharacterBpe::merges_across(tokens, kSpaceMark);
        const CharacterBpe::Options options{.unk = unk,
                                            .byte_fallback = fields.byte_fallback,
                                            .fuse_unk = fields.fuse_unk,
                                            .ignore_merges = fields.ignore_merges};
        result.model =
            std::make_unique<CharacterBpe>(tokens, result.vocabulary.index, std::move(merges), options, name);
    }
    if (unk) tokens.set_kind(*unk, TokenKind::Unknown);
    return result;
}

/// [["<unk>", 0.0], ["a", -3.1], ...]; ids count up.
JsonModel read_unigram(const JsonModelFields& fields, TokenSpelling spelling, const std::string& name) {
    if (spelling == TokenSpelling::ByteAlphabet)
        throw Unsupported(fmt::format("{}: a Unigram model behind ByteLevel is not known to this version", name));
    if (fields.vocabulary.empty()) throw FormatError(fmt::format("{}: model: vocab is missing", name));
    JsonModel result;
    TokenVocabulary& tokens = *result.vocabulary.tokens;
    std::vector<double> scores;
    JsonStream json(fields.vocabulary, name);
    json.enter_array();
    while (json.next_element()) {
        json.enter_array();
        if (!json.next_element()) json.fail("a piece without text");
        tokens.set(std::ssize(scores), json.string(), TokenKind::Normal, name);
        if (!json.next_element()) json.fail("a piece without score");
        scores.push_back(json.number());
        if (json.next_element()) json.fail("a piece with more than text and score");
    }
    // Of equal spellings the last id counts, as in the package.
    result.vocabulary.index = StringIndex(scores.size());
    for (TokenId id = static_cast<TokenId>(tokens.size()); id-- > 0;)
        result.vocabulary.index.insert(tokens.spelling(id), id, [&](TokenId other) { return tokens.spelling(other); });
    if (fields.unk_id && (*fields.unk_id < 0 || *fields.unk_id >= tokens.size()))
        throw FormatError(fmt::format("{}: model: unk_id {} of {} tokens", name, *fields.unk_id, tokens.size()));
    const UnigramWords::Options options{
        .unk = fields.unk_id ? std::optional(static_cast<TokenId>(*fields.unk_id)) : std::nullopt,
        .byte_fallback = fields.byte_fallback};
    result.model = std::make_unique<UnigramWords>(tokens, result.vocabulary.index, scores, options, name);
    if (options.unk) tokens.set_kind(*options.unk, TokenKind::Unknown);
    return result;
}

}  // namespace

JsonModelFields read_model_fields(JsonStream& json, const std::string& name) {
    const std::string where = name + ": model";
    JsonModelFields fields;
    json.enter_object();
    while (const auto found = json.next_key()) {
        const std::string key(*found);
        if (key == "type") {
            fields.type = json.string();
        } else if (key == "vocab") {
            fields.vocabulary = json.raw_value();
        } else if (key == "merges") {
            fields.merges = json.raw_value();
        } else if (key == "unk_token") {
            fields.unk_token = text_or_nothing(json);
        } else if (key == "unk_id") {
            if (json.peek() == JsonStream::Kind::Null)
                json.raw_value();
            else
                fields.unk_id = json.integer();
        } else if (key == "byte_fallback") {
            fields.byte_fallback = is_true(json);
        } else if (key == "fuse_unk") {
            fields.fuse_unk = is_true(json);
        } else if (key == "ignore_merges") {
            fields.ignore_merges = is_true(json);
        } else if (key == "dropout") {
            const bool is_set = json.peek() != JsonStream::Kind::Null;
            if (is_set && json.number() != 0)
                throw Unsupported(fmt::format("{} with dropout is not known to this version", where));
            if (!is_set) json.raw_value();
        } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
            if (!text_or_nothing(json).empty())
                throw Unsupported(fmt::format("{} with {} is not known to this version", where, key));
        } else {
            json.raw_value();  // of a trainer, or of a kind that is refused below
        }
    }
    if (fields.type.empty() && !fields.merges.empty()) fields.type = "BPE";  // files of version 0.8 and before
    return fields;
}

JsonModel read_json_model(const JsonModelFields& fields, TokenSpelling spelling, const std::string& name) {
    if (fields.type == "BPE") return read_bpe(fields, spelling, name);
    if (fields.type == "Unigram") return read_unigram(fields, spelling, name);
    throw Unsupported(fmt::format("{}: the tokenizer's model '{}' is not known to this version; BPE and Unigram are",
                                  name, printable(fields.type)));
}

}  // namespace slipstream
