#include "runtime/text/tokenizer/tokenizer_json_parts.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/pre_tokenizer_names.h"
#include "runtime/text/tokenizer/vocabulary.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

TokenId parse_id(const std::string& text, const std::string& name) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0 || id >= TokenVocabulary::kMaxTokens)
        throw FormatError(fmt::format("{}: added token id '{}' is not an id", name, printable(text)));
    return static_cast<TokenId>(id);
}

/// Returns the text of a token that is written as "<s>" or as {"content": "<s>", ...}, or nullopt if the field is
/// missing.
std::optional<std::string> token_text(const JsonFields& fields, const char* key) {
    const auto* value = fields.find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    if (value->is_object() && value->contains("content") && (*value)["content"].is_string())
        return (*value)["content"].get<std::string>();
    fields.fail(key, "is neither a text nor a token with content");
}

}  // namespace

void refuse_part(const std::string& where, std::string_view what) {
    throw Unsupported(fmt::format("{}: {} is not known to this version", where, printable(what)));
}

TokenizerSettings read_tokenizer_settings(std::string_view text, const std::string& name) {
    TokenizerSettings settings;
    const nlohmann::json json = parse_json_object(text, name);
    const JsonFields fields(json, name);
    settings.tokenizer_class = fields.string("tokenizer_class").value_or("");
    settings.bos_token = token_text(fields, "bos_token");
    settings.eos_token = token_text(fields, "eos_token");
    settings.unk_token = token_text(fields, "unk_token");
    settings.add_bos = fields.boolean("add_bos_token");
    settings.add_eos = fields.boolean("add_eos_token");
    settings.add_prefix_space = fields.boolean("add_prefix_space");
    if (const auto* decoder = fields.object("added_tokens_decoder"))
        for (const auto& [key, token] : decoder->items())
            settings.added_tokens.push_back(read_added_token(token, parse_id(key, name), name));
    std::ranges::sort(settings.added_tokens, {}, &AddedToken::id);
    return settings;
}

// The parts of a tokenizer.json that concern tokens: decoder, post_processor, added_tokens.

namespace {

using nlohmann::json;

/// Returns the field "type" of a part. Throws FormatError if the part is not an object or has no such field; `where`
/// names the part in the message.
std::string type_of(const json& part, const std::string& where) {
    if (!part.is_object()) throw FormatError(fmt::format("{}: is not an object", where));
    const JsonFields fields(part, where);
    const auto type = fields.string("type");
    if (!type) fields.fail("type", "is missing");
    return *type;
}

const json& list_field(const json& part, const char* key, const std::string& where) {
    const auto found = part.find(key);
    if (found == part.end() || !found->is_array())
        throw FormatError(fmt::format("{}: field {} is not a list", where, key));
    return *found;
}

TokenId to_id(const json& value, const JsonFields& fields, const char* key) {
    const std::int64_t id = fields.to_integer(value, key);
    if (id < 0 || id >= TokenVocabulary::kMaxTokens) fields.fail(key, fmt::format("is {}, which is not an id", id));
    return static_cast<TokenId>(id);
}

/// Adds a decoder step to `decoding`. Steps before "Fuse" apply to each token, steps after it to the whole text; the
/// only step supported after "Fuse" is a Strip of one space at the beginning.
void add_decoder(const json& part, const std::string& where, bool& is_fused, TokenDecoding& decoding) {
    const std::string type = type_of(part, where);
    const JsonFields fields(part, fmt::format("{} {}", where, printable(type)));
    if (type == "Sequence") {
        for (const json& step : list_field(part, "decoders", where)) add_decoder(step, where, is_fused, decoding);
    } else if (type == "Fuse") {
        is_fused = true;
    } else if (type == "Strip") {
        const bool one_space = fields.string("content") == " " && fields.integer("start").value_or(0) == 1 &&
                               fields.integer("stop").value_or(0) == 0;
        if (!one_space || !is_fused) refuse_part(fields.name(), "anything but one space at the beginning of the text");
        decoding.strips_space = true;
    } else if (is_fused) {
        refuse_part(where, fmt::format("'{}' after 'Fuse'", type));
    } else if (type == "ByteLevel") {
        decoding.byte_alphabet = true;
    } else if (type == "ByteFallback") {
        decoding.byte_fallback = true;
    } else if (type == "Metaspace") {
        decoding.replacements.emplace_back(fields.string("replacement").value_or("\xe2\x96\x81"), " ");
        const bool never =
            fields.string("prepend_scheme") == "never" || !fields.boolean("add_prefix_space").value_or(true);
        if (!never) decoding.strips_space = true;
    } else if (type == "Replace") {
        const json* pattern = fields.object("pattern");
        const auto what = pattern == nullptr ? std::nullopt : JsonFields(*pattern, fields.name()).string("String");
        if (!what || what->empty()) refuse_part(fields.name(), "a pattern that is not a String");
        decoding.replacements.emplace_back(*what, fields.string("content").value_or(""));
    } else {
        refuse_part(where, type);
    }
}

/// Returns the id of `token`, a name in the "special_tokens" of a TemplateProcessing.
TokenId template_id(const std::string& token, const JsonFields& fields) {
    const json* tokens = fields.object("special_tokens");
    if (tokens == nullptr || !tokens->contains(token) || !(*tokens)[token].is_object())
        fields.fail("special_tokens", fmt::format("does not hold '{}'", printable(token)));
    const json& ids = list_field((*tokens)[token], "ids", fields.name());
    if (ids.size() != 1) refuse_part(fields.name(), fmt::format("'{}' for {} tokens", token, ids.size()));
    return to_id(ids[0], fields, "special_tokens");
}

void place(std::optional<TokenId>& where, TokenId id, const std::string& name) {
    if (where && *where != id) refuse_part(name, "more than one token at one end of the text");
    where = id;
}

void add_template(const json& part, const JsonFields& fields, TextTemplate& result) {
    bool is_behind = false;
    for (const json& item : list_field(part, "single", fields.name())) {
        if (!item.is_object() || item.size() != 1) fields.fail("single", "holds something that is not a token");
        if (item.contains("Sequence")) {
            const JsonFields sequence(item["Sequence"], fields.name());
            if (is_behind || !item["Sequence"].is_object() || sequence.string("id") != "A")
                refuse_part(fields.name(), "a template of more than one text");
            is_behind = true;
        } else if (item.contains("SpecialToken") && item["SpecialToken"].is_object()) {
            const auto token = JsonFields(item["SpecialToken"], fields.name()).string("id");
            if (!token) fields.fail("single", "holds a token without id");
            std::optional<TokenId>& end = is_behind ? result.after : result.before;
            if (end) refuse_part(fields.name(), "more than one token at one end of the text");
            end = template_id(*token, fields);
        } else {
            fields.fail("single", "holds something that is not a token");
        }
    }
    if (!is_behind) refuse_part(fields.name(), "a template without the text");
}

/// Returns the id of a token that is written as ["<s>", 0].
TokenId named_id(const JsonFields& fields, const char* key) {
    const json* pair = fields.find(key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2) fields.fail(key, "is not a pair of token and id");
    return to_id((*pair)[1], fields, key);
}

void add_post_processor(const json& part, const std::string& where, TextTemplate& result) {
    const std::string type = type_of(part, where);
    const JsonFields fields(part, fmt::format("{} {}", where, printable(type)));
    if (type == "Sequence") {
        for (const json& step : list_field(part, "processors", where)) add_post_processor(step, where, result);
    } else if (type == "ByteLevel") {  // changes only offsets
    } else if (type == "TemplateProcessing") {
        add_template(part, fields, result);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
        place(result.before, named_id(fields, "cls"), fields.name());
        place(result.after, named_id(fields, "sep"), fields.name());
    } else {
        refuse_part(where, type);
    }
}

}  // namespace

TokenDecoding read_decoder(const json& json, const std::string& name) {
    TokenDecoding decoding;
    bool is_fused = false;
    if (!json.is_null()) add_decoder(json, name + ": decoder", is_fused, decoding);
    return decoding;
}

TextTemplate read_post_processor(const json& json, const std::string& name) {
    TextTemplate result;
    if (!json.is_null()) add_post_processor(json, name + ": post_processor", result);
    return result;
}

AddedToken read_added_token(const json& json, TokenId id, const std::string& name) {
    const std::string where = fmt::format("{}: added token {}", name, id);
    if (!json.is_object()) throw FormatError(fmt::format("{} is not an object", where));
    const JsonFields fields(json, where);
    const auto flag = [&](const char* key, bool otherwise) { return fields.boolean(key).value_or(otherwise); };
    const auto content = fields.string("content");
    if (!content) fields.fail("content", "is missing");
    if (content->empty()) fields.fail("content", "is empty");
    AddedToken token;
    token.content = *content;
    token.id = id;
    token.special = flag("special", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.single_word = flag("single_word", false);
    token.normalized = flag("normalized", !token.special);
    return token;
}

std::vector<AddedToken> read_added_tokens(const json& json, const std::string& name) {
    std::vector<AddedToken> tokens;
    if (json.is_null()) return tokens;
    const std::string where = name + ": added_tokens";
    if (!json.is_array()) throw FormatError(fmt::format("{} is not a list", where));
    for (const auto& token : json) {
        if (!token.is_object()) throw FormatError(fmt::format("{} holds something that is not a token", where));
        const JsonFields fields(token, where);
        const auto* id = fields.find("id");
        if (id == nullptr) fields.fail("id", "is missing");
        tokens.push_back(read_added_token(token, to_id(*id, fields, "id"), name));
    }
    return tokens;
}

// The parts of a tokenizer.json that process text before the model: normalizer and pre_tokenizer.

namespace {

using nlohmann::json;

/// Returns the index of `name` in `names`, which must be in the order of the enumerators, or nullopt.
std::optional<std::size_t> place_in(std::initializer_list<std::string_view> names, std::string_view name) {
    const auto* const found = std::ranges::find(names, name);
    return found == names.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - names.begin()));
}

/// Limits the steps of a part to 64, since each may hold a compiled pattern. Throws Unsupported if `n_steps` has
/// reached the limit.
void check_number(std::size_t n_steps, const std::string& where) {
    constexpr std::size_t max_steps = 64;
    if (n_steps >= max_steps) refuse_part(where, fmt::format("more than {} steps", max_steps));
}

std::string text_field(const JsonFields& fields, const char* key) {
    const auto text = fields.string(key);
    if (!text) fields.fail(key, "is missing");
    return *text;
}

/// A pattern, {"String": "a"} or {"Regex": "a+"}; is_regex says which of the two.
struct PatternField {
    std::string text;
    bool is_regex;
};
PatternField pattern_field(const JsonFields& fields) {
    const json* pattern = fields.object("pattern");
    if (pattern == nullptr) fields.fail("pattern", "is missing");
    const JsonFields inner(*pattern, fields.name());
    if (const auto text = inner.string("String")) return {*text, false};
    if (const auto text = inner.string("Regex")) return {*text, true};
    fields.fail("pattern", "is neither String nor Regex");
}

TextPattern compiled(const PatternField& pattern, const std::string& where) {
    if (!pattern.is_regex && pattern.text.empty()) refuse_part(where, "an empty pattern");
    return TextPattern(
        pattern.is_regex ? to_pcre2(pattern.text, PatternDialect::Oniguruma, where) : literal_pcre2(pattern.text),
        where);
}

TextPattern compiled(std::string_view regex, PatternDialect dialect, const std::string& where) {
    return TextPattern(to_pcre2(regex, dialect, where), where);
}

void add_normalizer(const json& part, const std::string& name, std::vector<NormalizerStep>& steps);

NormalizerStep replace_step(const JsonFields& fields) {
    PatternField pattern = pattern_field(fields);
    const std::string content = text_field(fields, "content");
    if (pattern.is_regex) return ReplaceStep{compiled(pattern, fields.name()), content};
    if (pattern.text.empty()) refuse_part(fields.name(), "an empty pattern");
    return ReplaceStep{std::move(pattern.text), content};
}

NormalizerStep charsmap_step(const JsonFields& fields) {
    const auto blob = decode_base64(text_field(fields, "precompiled_charsmap"));
    if (!blob) fields.fail("precompiled_charsmap", "is not base64");
    return CharsmapStep{PrecompiledCharsmap(*blob, fields.name())};
}

void add_normalizer(const json& part, const std::string& name, std::vector<NormalizerStep>& steps) {
    const std::string where = name + ": normalizer";
    check_number(steps.size(), where);
    const std::string type = type_of(part, where);
    const JsonFields fields(part, fmt::format("{} {}", where, printable(type)));
    if (type == "Sequence") {
        for (const json& step : list_field(part, "normalizers", where)) add_normalizer(step, name, steps);
    } else if (const auto form = place_in({"NFC", "NFD", "NFKC", "NFKD"}, type)) {
        steps.emplace_back(static_cast<UnicodeForm>(*form));
    } else if (type == "Prepend") {
        steps.emplace_back(PrependStep{text_field(fields, "prepend")});
    } else if (type == "Replace") {
        steps.push_back(replace_step(fields));
    } else if (type == "Lowercase") {
        steps.emplace_back(LowercaseStep{});
    } else if (type == "Strip") {
        const bool left = fields.boolean("strip_left").value_or(true);
        const bool right = fields.boolean("strip_right").value_or(true);
        using Ends = StripStep::Ends;
        if (left || right) steps.emplace_back(StripStep{left && right ? Ends::Both : left ? Ends::Left : Ends::Right});
    } else if (type == "Precompiled") {
        steps.push_back(charsmap_step(fields));
    } else {
        refuse_part(where, type);
    }
}

SplitBehavior split_behavior(const JsonFields& fields, std::string_view otherwise) {
    const std::string text = fields.string("behavior").value_or(std::string(otherwise));
    if (const auto place =
            place_in({"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, text))
        return static_cast<SplitBehavior>(*place);
    refuse_part(fields.name(), fmt::format("the behavior '{}'", text));
}

void add_byte_level(const JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
    if (fields.boolean("add_prefix_space").value_or(true)) steps.emplace_back(PrefixSpaceStep{});
    if (fields.boolean("use_regex").value_or(true))
        steps.emplace_back(SplitStep{compiled(kGpt2Pattern, PatternDialect::Oniguruma, fields.name())});
    steps.emplace_back(ByteAlphabetStep{});
}

void add_metaspace(const JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
    MetaspaceStep step;
    step.replacement = text_field(fields, "replacement");
    const bool is_character =
        !step.replacement.empty() && next_utf8(step.replacement).length == step.replacement.size();
    if (!is_character) fields.fail("replacement", "is not one character");
    const std::string scheme = fields.string("prepend_scheme").value_or("always");
    using Prepend = MetaspaceStep::Prepend;
    const auto prepend = place_in({"always", "first", "never"}, scheme);
    if (!prepend) refuse_part(fields.name(), fmt::format("the prepend_scheme '{}'", scheme));
    step.prepend = static_cast<Prepend>(*prepend);
    // Older files have add_prefix_space instead of prepend_scheme.
    if (!fields.boolean("add_prefix_space").value_or(true)) {
        if (fields.has("prepend_scheme") && step.prepend != Prepend::Never)
            fields.fail("add_prefix_space", "contradicts prepend_scheme");
        step.prepend = Prepend::Never;
    }
    const std::string replacement = step.replacement;
    steps.emplace_back(std::move(step));
    if (fields.boolean("split").value_or(true))
        steps.emplace_back(
            SplitStep{TextPattern(literal_pcre2(replacement), fields.name()), SplitBehavior::MergedWithNext});
}

// PCRE2 pattern that matches one punctuation character: ASCII punctuation, and the category P of Unicode 7, which is
// the version that the tokenizers package's library implements.
constexpr std::string_view kPunctuation =
    R"((?![\x{61d}\x{9fd}\x{a76}\x{c77}\x{c84}\x{1b7d}\x{1b7e}\x{2e43}-\x{2e4f}\x{2e52}-\x{2e5d}\x{10ead}\x{10f55}-\x{10f59})"
    R"(\x{10f86}-\x{10f89}\x{1144b}-\x{1144f}\x{1145a}\x{1145b}\x{1145d}\x{11660}-\x{1166c}\x{116b9}\x{1183b})"
    R"(\x{11944}-\x{11946}\x{119e2}\x{11a3f}-\x{11a46}\x{11a9a}-\x{11a9c}\x{11a9e}-\x{11aa2}\x{11c41}-\x{11c45}\x{11c70})"
    R"(\x{11c71}\x{11ef7}\x{11ef8}\x{11fff}\x{16e97}-\x{16e9a}\x{16fe2}\x{1e95e}\x{1e95f}]))"
    R"([\p{P}!-/:-@\[-`{-~\x{166d}\x{111c9}])";

void add_pre_tokenizer(const json& part, const std::string& name, std::vector<PreTokenizerStep>& steps) {
    const std::string where = name + ": pre_tokenizer";
    check_number(steps.size(), where);
    const std::string type = type_of(part, where);
    const JsonFields fields(part, fmt::format("{} {}", where, printable(type)));
    if (type == "Sequence") {
        for (const json& step : list_field(part, "pretokenizers", where)) add_pre_tokenizer(step, name, steps);
    } else if (type == "ByteLevel") {
        add_byte_level(fields, steps);
    } else if (type == "Split") {
        const auto matches = fields.boolean("invert").value_or(false) ? SplitMatches::Words : SplitMatches::Delimiters;
        steps.emplace_back(
            SplitStep{compiled(pattern_field(fields), fields.name()), split_behavior(fields, "Removed"), matches});
    } else if (type == "Digits") {
        const bool each = fields.boolean("individual_digits").value_or(false);
        steps.emplace_back(SplitStep{compiled("\\p{N}", PatternDialect::Rust, fields.name()),
                                     each ? SplitBehavior::Isolated : SplitBehavior::Contiguous});
    } else if (type == "Metaspace") {
        add_metaspace(fields, steps);
    } else if (type == "Punctuation") {
        steps.emplace_back(SplitStep{TextPattern(kPunctuation, fields.name()), split_behavior(fields, "Isolated")});
    } else if (type == "Whitespace") {
        steps.emplace_back(SplitStep{compiled("\\w+|[^\\w\\s]+", PatternDialect::Rust, fields.name()),
                                     SplitBehavior::Removed, SplitMatches::Words});
    } else if (type == "WhitespaceSplit") {
        steps.emplace_back(SplitStep{compiled("\\s", PatternDialect::Rust, fields.name()), SplitBehavior::Removed});
    } else {
        refuse_part(where, type);
    }
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const json& json, const std::string& name) {
    std::vector<NormalizerStep> steps;
    if (!json.is_null()) add_normalizer(json, name, steps);
    return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const json& json, const std::string& name) {
    std::vector<PreTokenizerStep> steps;
    if (!json.is_null()) add_pre_tokenizer(json, name, steps);
    return steps;
}

}  // namespace slipstream
