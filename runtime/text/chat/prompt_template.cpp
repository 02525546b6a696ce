#include "runtime/text/chat/prompt_template.h"

#include <algorithm>
#include <array>

namespace slipstream {

namespace {

std::optional<std::string> spelling(const Tokenizer& tokenizer, std::optional<TokenId> id) {
    return id ? std::optional(std::string(tokenizer.piece(*id))) : std::nullopt;
}

bool is_end_token(const Tokenizer& tokenizer, std::string_view text) {
    return std::ranges::any_of(tokenizer.end_tokens(), [&](TokenId id) { return tokenizer.piece(id) == text; });
}

// Returns whether the vocabulary has `text` as one token.
bool is_one_token(const Tokenizer& tokenizer, std::string_view text) {
    const std::vector<TokenId> ids = tokenizer.encode(text, SpecialTokens::Parse);
    return std::ranges::any_of(ids, [&](TokenId id) { return tokenizer.piece(id) == text; });
}

}  // namespace

TemplateValue said_value(const TemplateValue& value) {
    using jinja::Kind;
    if (value.is_text() && !value.text().marked.said.empty()) return value;
    if (value.is_text()) return TemplateValue::said(std::string(value.view()));
    if (value.is(Kind::Dict)) {
        jinja::Dict dict;
        for (const auto& [key, item] : value.dict().items()) dict.set(said_value(key), said_value(item));
        return TemplateValue::dict(std::move(dict));
    }
    if (!value.is_sequence()) return value;
    std::vector<TemplateValue> items;
    for (const TemplateValue& item : value.items()) items.push_back(said_value(item));
    return TemplateValue::list(std::move(items));
}

TemplateValue said_message(const TemplateValue& message) {
    if (!message.is(jinja::Kind::Dict)) return message;
    const TemplateValue* role = message.dict().find("role");
    const std::string_view name = role != nullptr && role->is_text() ? role->view() : std::string_view();
    if (name == "system" || name == "developer") return message;
    jinja::Dict marked;
    for (const auto& [key, value] : message.dict().items())
        marked.set(key, key.is_text() && key.view() == "role" ? value : said_value(value));
    return TemplateValue::dict(std::move(marked));
}

PromptTemplate::PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer,
                               std::string_view turn_end)
    : template_(std::move(chat_template)),
      arguments_(std::move(arguments)),
      answer_form_(
          choose_answer_form(template_.source(), [&](std::string_view text) { return is_one_token(tokenizer, text); })),
      bos_token_(spelling(tokenizer, tokenizer.bos_id())),
      eos_token_(spelling(tokenizer, tokenizer.eos_id())) {
    if (!turn_end.empty() && !is_end_token(tokenizer, turn_end)) turn_end_ = turn_end;
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &began_);
}

MarkedText PromptTemplate::render(std::span<const Message> messages, const TemplateArguments& more,
                                  const std::atomic<bool>* cancel) const {
    std::vector<TemplateValue> list;
    list.reserve(messages.size());
    for (const Message& message : messages) {
        const TemplateValue content(message.content);
        jinja::Dict dict;
        dict.set("role", TemplateValue(message.role));
        dict.set("content", message.is_said ? said_value(content) : content);
        if (!message.thought.empty()) dict.set("reasoning_content", TemplateValue(message.thought));
        list.push_back(TemplateValue::dict(std::move(dict)));
    }
    return render(TemplateValue::list(std::move(list)), more, cancel);
}

MarkedText PromptTemplate::render(const TemplateValue& messages, const TemplateArguments& more,
                                  const std::atomic<bool>* cancel) const {
    std::vector<TemplateValue> marked;
    if (!messages.is_sequence()) throw TemplateError(name(), 0, "the messages are not a list");
    for (const TemplateValue& message : messages.items()) marked.push_back(said_message(message));
    TemplateArguments arguments = arguments_;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return template_.render({.messages = TemplateValue::list(std::move(marked)),
                             .add_generation_prompt = true,
                             .bos_token = bos_token_,
                             .eos_token = eos_token_,
                             .arguments = std::move(arguments),
                             .now = began_},
                            {.cancel = cancel});
}

std::string_view PromptTemplate::thinking_variable() const {
    for (const std::string_view name : kThinkingVariables)
        if (reads(name)) return name;
    return {};
}

std::vector<std::string> PromptTemplate::arguments_read() const {
    constexpr std::array<std::string_view, 4> kOurs{"messages", "add_generation_prompt", "bos_token", "eos_token"};
    std::vector<std::string> names = template_.variables();
    std::erase_if(names, [&](const std::string& name) { return std::ranges::find(kOurs, name) != kOurs.end(); });
    return names;
}

}  // namespace slipstream
