#include "runtime/text/tokenizer/tokenizer_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"
#include "runtime/text/tokenizer/word_models.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// The large parts of a tokenizer.json, 100,000 strings and more, are read in one pass into flat arrays; the small parts
// become JSON values.

/// The strings of a JSON object or array, each with a number or without: tokens with ids (an object), tokens with
/// scores, merges, or halves of merges (arrays).
struct JsonEntries {
    enum class Form : std::uint8_t { Missing, Object, Array } form = Form::Missing;
    std::string texts;              // concatenated
    std::vector<std::size_t> ends;  // [n]: end of each string, in bytes of `texts`
    std::vector<double> numbers;    // [n]: NaN: no number; the first half of a merge has kFirstHalf

    // Marks, in `numbers`, a string that is the first half of a merge; the next string is the second half.
    static constexpr double kFirstHalf = 1;

    void add(std::string_view text, double number) {
        texts += text;
        ends.push_back(texts.size());
        numbers.push_back(number);
    }
    [[nodiscard]] std::size_t size() const { return ends.size(); }
    [[nodiscard]] std::string_view text(std::size_t i) const {
        const std::size_t begin = i == 0 ? 0 : ends[i - 1];
        return std::string_view(texts).substr(begin, ends[i] - begin);
    }
};

struct TokenizerJsonFile {
    JsonEntries vocabulary, merges;  // vocabulary and merges of the model; they are not in `rest`
    nlohmann::json rest;             // an object with all other parts, also those in `model`
};

using Form = JsonEntries::Form;

class FileReader final : public JsonBuilder {
public:
    FileReader(std::string_view text, std::string_view name, TokenizerJsonFile& file)
        : JsonBuilder(text, name), file_(file) {}

    bool null() override { return bulk_ != nullptr ? refuse() : JsonBuilder::null(); }
    bool boolean(bool value) override { return bulk_ != nullptr ? refuse() : JsonBuilder::boolean(value); }
    bool number_integer(std::int64_t value) override {
        return bulk_ != nullptr ? number(static_cast<double>(value)) : JsonBuilder::number_integer(value);
    }
    bool number_unsigned(std::uint64_t value) override {
        return bulk_ != nullptr ? number(static_cast<double>(value)) : JsonBuilder::number_unsigned(value);
    }
    bool number_float(double value, const std::string& text) override {
        return bulk_ != nullptr ? number(value) : JsonBuilder::number_float(value, text);
    }
    bool string(std::string& value) override {
        if (bulk_ == nullptr) return JsonBuilder::string(value);
        // Strings are allowed only as a merge written as one line, and inside a pair.
        return bulk_->form == Form::Array && (in_pair_ || bulk_ == &file_.merges) ? text(value) : refuse();
    }
    bool key(std::string& key) override { return bulk_ != nullptr ? text(key) : JsonBuilder::key(key); }
    bool start_object(std::size_t size) override {
        if (bulk_ != nullptr) return refuse();
        return begins_bulk(Form::Object) || JsonBuilder::start_object(size);
    }
    bool start_array(std::size_t size) override {
        if (bulk_ == nullptr) return begins_bulk(Form::Array) || JsonBuilder::start_array(size);
        if (bulk_->form != Form::Array || std::exchange(in_pair_, true)) return refuse();
        pair_begin_ = bulk_->size();
        return true;
    }
    bool end_object() override { return bulk_ != nullptr ? end_bulk() : JsonBuilder::end_object(); }
    bool end_array() override {
        if (bulk_ == nullptr) return JsonBuilder::end_array();
        return std::exchange(in_pair_, false) ? end_pair() : end_bulk();
    }

private:
    [[noreturn]] bool refuse() const {
        throw FormatError(fmt::format("{}: the model's vocab or merges hold what is neither token nor merge", name()));
    }
    bool begins_bulk(Form form) {
        const bool is_in_model = depth() == 2 && key_at(0) == "model";
        if (is_in_model && key_at(1) == "vocab") bulk_ = &file_.vocabulary;
        if (is_in_model && key_at(1) == "merges") bulk_ = &file_.merges;
        if (bulk_ == nullptr) return false;
        if (bulk_->form != Form::Missing || (bulk_ == &file_.merges && form == Form::Object)) refuse();
        bulk_->form = form;
        return true;
    }
    bool end_bulk() {
        if (bulk_->form == Form::Object && !bulk_->numbers.empty() && std::isnan(bulk_->numbers.back())) refuse();
        bulk_ = nullptr;
        return true;
    }
    // Ends a pair: ["token", score], or the two halves of a merge.
    bool end_pair() {
        const std::size_t n_texts = bulk_->size() - pair_begin_;
        if (n_texts != (bulk_ == &file_.merges ? 2 : 1)) refuse();
        double& number = bulk_->numbers[pair_begin_];
        if (std::isnan(number) == (bulk_ != &file_.merges)) refuse();
        if (bulk_ == &file_.merges) number = JsonEntries::kFirstHalf;
        return true;
    }
    bool text(std::string_view text) {
        // In an object, the string before this one must have its number by now.
        if (bulk_->form == Form::Object && !bulk_->numbers.empty() && std::isnan(bulk_->numbers.back())) refuse();
        bulk_->add(text, std::numeric_limits<double>::quiet_NaN());
        return true;
    }
    bool number(double value) {
        const bool belongs = bulk_->form == Form::Object || (in_pair_ && bulk_->size() > pair_begin_);
        if (!belongs || bulk_->numbers.empty() || !std::isnan(bulk_->numbers.back())) refuse();
        bulk_->numbers.back() = value;
        return true;
    }

    TokenizerJsonFile& file_;
    JsonEntries* bulk_ = nullptr;  // the array that is being filled; null while small parts are read
    bool in_pair_ = false;
    std::size_t pair_begin_ = 0;
};

TokenizerJsonFile read_tokenizer_json_file(std::string_view text, std::string_view name) {
    TokenizerJsonFile file;
    FileReader reader(text, name, file);
    parse_json_events(text, reader);
    file.rest = reader.take();
    if (!file.rest.is_object()) throw FormatError(fmt::format("{}: holds JSON, but no object", name));
    if (!file.rest.contains("model"))
        throw FormatError(fmt::format("{}: there is no model in it; this is not a tokenizer.json", name));
    return file;
}

/// Reads {"token": id, ...} into `entries` and returns true. Returns false for any text that is not written in the
/// usual way; then the JSON library, which takes about a hundred instructions per byte, must read or refuse the text.
bool read_pairs(std::string_view text, JsonEntries& entries) {
    const auto take = [&text](char wanted) {
        while (!text.empty() && (text[0] == ' ' || text[0] == '\n' || text[0] == '\r' || text[0] == '\t'))
            text.remove_prefix(1);
        if (!text.starts_with(wanted)) return false;
        text.remove_prefix(1);
        return true;
    };
    if (!take('{')) return false;
    do {
        if (!take('"')) return false;
        std::size_t end = 0;
        bool is_plain = true;
        for (; end < text.size() && text[end] != '"' && static_cast<unsigned char>(text[end]) >= 0x20; ++end)
            if (text[end] == '\\') is_plain = false, ++end;
        const std::string_view key = text.substr(0, end);
        if (end >= text.size() || text[end] != '"' || valid_utf8_prefix(key) != end) return false;
        text.remove_prefix(end + 1);
        std::uint32_t id = 0;
        if (!take(':')) return false;
        if (text.starts_with(' ')) text.remove_prefix(1);
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), id);
        if (error != std::errc() || (text[0] == '0' && stop != text.data() + 1)) return false;
        text.remove_prefix(stop - text.data());
        if (is_plain)
            entries.add(key, id);
        else if (const auto json = parse_json_value(fmt::format("\"{}\"", key)); json.is_string())
            entries.add(json.get_ref<const std::string&>(), id);
        else
            return false;
    } while (take(','));
    return take('}') && text.find_first_not_of(" \n\r\t") == std::string_view::npos;
}

/// Returns the vocabulary of `entries`, whose numbers are the ids (so not of Form::Array). Throws FormatError if an id
/// is not valid or appears twice, or a token appears twice; `name` is the name of the file.
IndexedVocabulary indexed(const JsonEntries& entries, std::string_view name) {
    IndexedVocabulary vocabulary;
    TokenVocabulary& tokens = *vocabulary.tokens;
    tokens.reserve(entries.size(), entries.texts.size());
    vocabulary.index = StringIndex(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::string_view spelling = entries.text(i);
        const double number = entries.numbers[i];
        if (!(number >= 0 && number < static_cast<double>(TokenVocabulary::kMaxTokens)) || std::floor(number) != number)
            throw FormatError(
                fmt::format("{}: '{}' has {} for an id; the file is broken", name, printable(spelling), number));
        const auto id = static_cast<TokenId>(number);
        if (tokens.kind(id) != TokenKind::Unused)
            throw FormatError(
                fmt::format("{}: id {} belongs to '{}' and to another token", name, id, printable(spelling)));
        tokens.set(id, spelling, TokenKind::Normal, name);
        if (vocabulary.index.insert(spelling, id, [&](TokenId other) { return tokens.spelling(other); }) >= 0)
            throw FormatError(fmt::format("{}: token '{}' is there twice", name, printable(spelling)));
    }
    return vocabulary;
}

}  // namespace

IndexedVocabulary read_vocabulary_object(std::string_view text, std::string_view name) {
    if (JsonEntries pairs; read_pairs(text, pairs)) return indexed(pairs, name);
    JsonEntries entries;
    const nlohmann::json object = parse_json_object(text, name);
    for (const auto& [token, id] : object.items()) {
        if (!id.is_number())
            throw FormatError(fmt::format("{}: '{}' has {} for an id", name, printable(token), printable(id.dump())));
        entries.add(token, id.get<double>());
    }
    return indexed(entries, name);
}

namespace {

enum class TokenSpelling : std::uint8_t { ByteAlphabet, Characters };

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

/// Sets the bytes that each token of the model prints, as `decoding` says.
void set_bytes(TokenVocabulary& vocabulary, const TokenDecoding& decoding, TokenSpelling spelling,
               const std::string& name) {
    if (spelling == TokenSpelling::ByteAlphabet) {  // already set, by read_bpe()
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

// The model of a tokenizer.json: the vocabulary, and the word model that turns words into tokens.

struct JsonModel {
    IndexedVocabulary vocabulary;
    std::unique_ptr<WordModel> model;
    bool may_cut_at_spaces = false;  // words may be cut before "▁" without changing any ids
};

MergeTable read_merges(const JsonEntries& merges, const IndexedVocabulary& vocabulary, const std::string& name) {
    MergeReader reader(vocabulary, merges.size(), name);
    for (std::size_t i = 0; i < merges.size(); ++i) {
        if (merges.numbers[i] == JsonEntries::kFirstHalf) {
            reader.add(merges.text(i), merges.text(i + 1));
            ++i;
        } else {
            reader.add(merges.text(i));
        }
    }
    return reader.take();
}

JsonModel read_bpe(const TokenizerJsonFile& file, const JsonFields& fields, TokenSpelling spelling,
                   const std::string& name) {
    if (file.vocabulary.form != JsonEntries::Form::Object || file.merges.form == JsonEntries::Form::Missing)
        throw FormatError(fmt::format("{}: vocab or merges are missing", fields.name()));
    JsonModel result{.vocabulary = indexed(file.vocabulary, name), .model = nullptr};
    TokenVocabulary& tokens = *result.vocabulary.tokens;
    MergeTable merges = read_merges(file.merges, result.vocabulary, name);
    std::optional<TokenId> unk;
    if (const std::string unk_token = fields.string("unk_token").value_or(""); !unk_token.empty()) {
        unk = result.vocabulary.find(unk_token);
        if (*unk < 0) fields.fail("unk_token", fmt::format("is '{}', not in the vocabulary", printable(unk_token)));
    }
    const bool ignores_merges = fields.boolean("ignore_merges").value_or(false);
    if (spelling == TokenSpelling::ByteAlphabet) {
        set_bytes_by_alphabet(tokens);
        const auto whole_words = ignores_merges ? ByteBpe::WholeWords::TakeFromVocabulary : ByteBpe::WholeWords::Merge;
        result.model = std::make_unique<ByteBpe>(tokens, std::move(merges), whole_words, unk);
    } else {
        result.may_cut_at_spaces = !ignores_merges && result.vocabulary.find(kSpaceMark) >= 0 &&
                                   !CharacterBpe::merges_across(tokens, kSpaceMark);
        const CharacterBpe::Options options{.unk = unk,
                                            .byte_fallback = fields.boolean("byte_fallback").value_or(false),
                                            .fuse_unk = fields.boolean("fuse_unk").value_or(false),
                                            .ignore_merges = ignores_merges};
        result.model =
            std::make_unique<CharacterBpe>(tokens, result.vocabulary.index, std::move(merges), options, name);
    }
    if (unk) tokens.set_kind(*unk, TokenKind::Unknown);
    return result;
}

/// Reads a unigram model, whose vocab is [["<unk>", 0.0], ["a", -3.1], ...]; the index of a token is its id.
JsonModel read_unigram(const TokenizerJsonFile& file, const JsonFields& fields, TokenSpelling spelling,
                       const std::string& name) {
    if (spelling == TokenSpelling::ByteAlphabet)
        throw Unsupported(fmt::format("{}: a Unigram model after ByteLevel is not known to this version", name));
    if (file.vocabulary.form != JsonEntries::Form::Array)
        throw FormatError(fmt::format("{}: vocab is missing", fields.name()));
    JsonModel result;
    TokenVocabulary& tokens = *result.vocabulary.tokens;
    for (std::size_t i = 0; i < file.vocabulary.size(); ++i)
        tokens.set(static_cast<std::int64_t>(i), file.vocabulary.text(i), TokenKind::Normal, name);
    // Of equal spellings, the last id counts, as in the tokenizers package.
    result.vocabulary.index = StringIndex(file.vocabulary.size());
    for (TokenId id = static_cast<TokenId>(tokens.size()); id-- > 0;)
        result.vocabulary.index.insert(tokens.spelling(id), id, [&](TokenId other) { return tokens.spelling(other); });
    const auto unk_id = fields.integer("unk_id");
    if (unk_id && (*unk_id < 0 || *unk_id >= tokens.size()))
        fields.fail("unk_id", fmt::format("is {} of {} tokens", *unk_id, tokens.size()));
    const UnigramWords::Options options{.unk = unk_id ? std::optional(static_cast<TokenId>(*unk_id)) : std::nullopt,
                                        .byte_fallback = fields.boolean("byte_fallback").value_or(false)};
    result.model =
        std::make_unique<UnigramWords>(tokens, result.vocabulary.index, file.vocabulary.numbers, options, name);
    if (options.unk) tokens.set_kind(*options.unk, TokenKind::Unknown);
    return result;
}

JsonModel read_model(const TokenizerJsonFile& file, TokenSpelling spelling, const std::string& name) {
    const nlohmann::json& json = file.rest["model"];
    if (!json.is_object()) throw FormatError(fmt::format("{}: model is not an object", name));
    const JsonFields fields(json, name + ": model");
    if (fields.number("dropout").value_or(0) != 0) refuse_part(fields.name(), "a model with dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!fields.string(key).value_or("").empty()) refuse_part(fields.name(), fmt::format("a model with {}", key));
    // Files of version 0.8 and before do not have the field "type".
    const bool has_merges = file.merges.form != JsonEntries::Form::Missing;
    const std::string type = fields.string("type").value_or(has_merges ? "BPE" : "");
    if (type == "BPE") return read_bpe(file, fields, spelling, name);
    if (type == "Unigram") return read_unigram(file, fields, spelling, name);
    throw Unsupported(fmt::format("{}: the tokenizer's model '{}' is not known to this version; BPE and Unigram are",
                                  name, printable(type)));
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const TokenizerSettings& settings, const TextEnds& ends) {
    const TokenizerJsonFile file = read_tokenizer_json_file(text, name);
    const auto part = [&](const char* key) { return file.rest.value(key, nlohmann::json()); };  // null: missing
    PipelineParts parts;
    parts.normalizer = TextNormalizer(read_normalizer(part("normalizer"), name));
    parts.pre_tokenizer = read_pre_tokenizer(part("pre_tokenizer"), name);
    const TokenSpelling spelling = spelling_of(parts.pre_tokenizer);
    const TokenDecoding decoding = read_decoder(part("decoder"), name);
    JsonModel model = read_model(file, spelling, name);
    if (model.may_cut_at_spaces)
        parts.pre_tokenizer.emplace_back(
            SplitStep{TextPattern(to_pcre2("▁*[^▁]+|▁+", PatternDialect::Oniguruma, name), name)});
    set_bytes(*model.vocabulary.tokens, decoding, spelling, name);
    parts.adds_space_prefix = decoding.strips_space;
    parts.added_tokens = place_added_tokens(read_added_tokens(part("added_tokens"), name), model.vocabulary, name);
    parts.model = std::move(model.model);
    parts.vocabulary = std::move(model.vocabulary.tokens);
    set_text_ends(settings, read_post_processor(part("post_processor"), name), ends, parts, name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
