// The parts of a tokenizer.json that text passes on its way to the model: normalizer and pre_tokenizer.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/base64.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/published_patterns.h"
#include "runtime/text/tokenizer/tokenizer_json_fields.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

using nlohmann::json;

/// Each step may hold compiled code: not without end.
void check_number(std::size_t n_steps, const std::string& where) {
    constexpr std::size_t max_steps = 64;
    if (n_steps >= max_steps) refuse_part(where, fmt::format("more than {} steps", max_steps));
}

std::string text_field(const JsonFields& fields, const char* key) {
    const auto text = fields.string(key);
    if (!text) fields.fail(key, "is missing");
    return *text;
}

/// {"String": "a"} or {"Regex": "a+"}, and which it is.
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
    } else if (type == "NFC") {
        steps.emplace_back(UnicodeForm::Nfc);
    } else if (type == "NFD") {
        steps.emplace_back(UnicodeForm::Nfd);
    } else if (type == "NFKC") {
        steps.emplace_back(UnicodeForm::Nfkc);
    } else if (type == "NFKD") {
        steps.emplace_back(UnicodeForm::Nfkd);
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
    if (text == "Removed") return SplitBehavior::Removed;
    if (text == "Isolated") return SplitBehavior::Isolated;
    if (text == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
    if (text == "MergedWithNext") return SplitBehavior::MergedWithNext;
    if (text == "Contiguous") return SplitBehavior::Contiguous;
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
    if (scheme == "always")
        step.prepend = Prepend::Always;
    else if (scheme == "first")
        step.prepend = Prepend::First;
    else if (scheme == "never")
        step.prepend = Prepend::Never;
    else
        refuse_part(fields.name(), fmt::format("the prepend_scheme '{}'", scheme));
    // Older files have this field alone.
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

// ASCII punctuation and category P as Unicode 7 had it, which is what the package's library knows.
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
