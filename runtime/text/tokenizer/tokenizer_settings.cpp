#include "runtime/text/tokenizer/tokenizer_settings.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/json_bounded.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/tokenizer/token_vocabulary.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"

namespace slipstream {

namespace {

TokenId parse_id(const std::string& text, const std::string& name) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0 || id >= TokenVocabulary::kMaxTokens)
        throw FormatError(fmt::format("{}: added token id '{}' is no id", name, printable(text)));
    return static_cast<TokenId>(id);
}

/// "<s>", or {"content": "<s>", ...}.
std::optional<std::string> token_text(const JsonFields& fields, const char* key) {
    const auto* value = fields.find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    if (value->is_object() && value->contains("content") && (*value)["content"].is_string())
        return (*value)["content"].get<std::string>();
    fields.fail(key, "is neither a text nor a token with content");
}

}  // namespace

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

bool ends_text_by_name(std::string_view spelling) {
    constexpr std::array<std::string_view, 13> spellings = {
        "<|eot_id|>",           "<|eom_id|>", "<|im_end|>", "<|end|>",  "<|endoftext|>",      "<|end_of_text|>",
        "<end_of_turn>",        "<|eot|>",    "<|return|>", "<|call|>", "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>",
        "<｜end▁of▁sentence｜>"};
    return std::ranges::find(spellings, spelling) != spellings.end();
}

bool is_turn_mark(std::string_view spelling) {
    constexpr std::array<std::string_view, 7> spellings = {"<start_of_turn>",  "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
                                                           "[/SYSTEM_PROMPT]", "<s>",    "</s>"};
    const auto is_between = [&](std::string_view front, std::string_view back) {
        return spelling.size() > front.size() + back.size() && spelling.starts_with(front) && spelling.ends_with(back);
    };
    return is_between("<|", "|>") || is_between("<｜", "｜>") || ends_text_by_name(spelling) ||
           std::ranges::find(spellings, spelling) != spellings.end();
}

}  // namespace slipstream
