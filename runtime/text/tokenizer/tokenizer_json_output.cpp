// The parts of a tokenizer.json that are about tokens: decoder, post_processor, added_tokens.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/token_vocabulary.h"
#include "runtime/text/tokenizer/tokenizer_json_fields.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"

namespace slipstream {

namespace {

using nlohmann::json;

TokenId to_id(const json& value, const JsonFields& fields, const char* key) {
    const std::int64_t id = fields.to_integer(value, key);
    if (id < 0 || id >= TokenVocabulary::kMaxTokens) fields.fail(key, fmt::format("is {}, which is no id", id));
    return static_cast<TokenId>(id);
}

/// Steps in front of "Fuse" see each token, those behind it the whole text; only one kind of the latter occurs.
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
        refuse_part(where, fmt::format("'{}' behind 'Fuse'", type));
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
        if (!what || what->empty()) refuse_part(fields.name(), "a pattern that is no String");
        decoding.replacements.emplace_back(*what, fields.string("content").value_or(""));
    } else {
        refuse_part(where, type);
    }
}

/// The id behind a name of a template's "special_tokens".
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
        if (!item.is_object() || item.size() != 1) fields.fail("single", "holds something that is no token");
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
            fields.fail("single", "holds something that is no token");
        }
    }
    if (!is_behind) refuse_part(fields.name(), "a template without the text");
}

/// ["<s>", 0]
TokenId named_id(const JsonFields& fields, const char* key) {
    const json* pair = fields.find(key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2) fields.fail(key, "is no pair of token and id");
    return to_id((*pair)[1], fields, key);
}

void add_post_processor(const json& part, const std::string& where, TextTemplate& result) {
    const std::string type = type_of(part, where);
    const JsonFields fields(part, fmt::format("{} {}", where, printable(type)));
    if (type == "Sequence") {
        for (const json& step : list_field(part, "processors", where)) add_post_processor(step, where, result);
    } else if (type == "ByteLevel") {  // offsets only
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
    if (!json.is_object()) throw FormatError(fmt::format("{} is no object", where));
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
    if (!json.is_array()) throw FormatError(fmt::format("{} is no list", where));
    for (const auto& token : json) {
        if (!token.is_object()) throw FormatError(fmt::format("{} holds something that is no token", where));
        const JsonFields fields(token, where);
        const auto* id = fields.find("id");
        if (id == nullptr) fields.fail("id", "is missing");
        tokens.push_back(read_added_token(token, to_id(*id, fields, "id"), name));
    }
    return tokens;
}

}  // namespace slipstream
