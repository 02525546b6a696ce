#include "tools/engine/prompt_template.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/printable.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

std::optional<std::string> spelling(const Tokenizer& tokenizer, std::optional<TokenId> id) {
    return id ? std::optional(std::string(tokenizer.piece(*id))) : std::nullopt;
}

bool is_end_token(const Tokenizer& tokenizer, std::string_view text) {
    return std::ranges::any_of(tokenizer.end_tokens(), [&](TokenId id) { return tokenizer.piece(id) == text; });
}

bool is_said(const Message& message) {
    return message.role != "system";
}

TemplateValue list_of(std::span<const Message> messages) {
    std::vector<TemplateValue> list;
    list.reserve(messages.size());
    for (const Message& message : messages) list.push_back(chat_message(message.role, message.content));
    return TemplateValue::list(std::move(list));
}

}  // namespace

PromptTemplate::PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer,
                               std::string_view turn_end)
    : template_(std::move(chat_template)),
      arguments_(std::move(arguments)),
      control_tokens_(tokenizer),
      bos_token_(spelling(tokenizer, tokenizer.bos_id())),
      eos_token_(spelling(tokenizer, tokenizer.eos_id())) {
    if (!turn_end.empty() && !is_end_token(tokenizer, turn_end)) turn_end_ = turn_end;
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &began_);
}

PromptText PromptTemplate::render(std::span<const Message> messages) const {
    const auto rendered = [&](std::span<const Message> said) {
        try {
            return template_.render({.messages = list_of(said),
                                     .add_generation_prompt = true,
                                     .bos_token = bos_token_,
                                     .eos_token = eos_token_,
                                     .arguments = arguments_,
                                     .now = began_},
                                    {.cancel = &cancel_flag()});
        } catch (const TemplateError&) {
            throw_if_interrupted();
            throw;
        }
    };
    if (std::ranges::none_of(messages, [&](const Message& message) {
            return is_said(message) && control_tokens_.is_spelt_in(message.content);
        }))
        return {rendered(messages), {}};
    const std::string plain = rendered(messages);  // whatever the template, its arguments and the messages hold
    std::vector<std::string_view> texts{template_.source(), plain};
    for (const Message& message : messages) texts.push_back(message.content);
    const std::string mark = unused_mark(texts);
    std::vector<Message> marked(messages.begin(), messages.end());
    for (Message& message : marked)
        if (is_said(message)) message.content = control_tokens_.marked(message.content, mark);
    try {
        PromptText prompt = without_marks(rendered(marked), mark);
        if (prompt.text == plain) return prompt;
    } catch (const TemplateError&) {  // what the marks made of it: the plain rendering went through
    }
    // The template looks into the messages (their length, their first letter), so that the marks change what it makes
    // of them. The plain rendering is what counts; it will do where no token in it can come from a message.
    std::vector<std::string_view> said;
    for (const Message& message : messages)
        if (is_said(message)) said.push_back(message.content);
    if (const auto spelt = control_tokens_.spelt_in_both(plain, said))
        throw RequestError(
            fmt::format("a message spells the control token {}, and {} changes messages in ways that do not tell it "
                        "from the template's own; leave it out of the message",
                        printable(*spelt), name()));
    return {plain, {}};
}

std::vector<std::string> PromptTemplate::arguments_read() const {
    constexpr std::array<std::string_view, 4> kOurs{"messages", "add_generation_prompt", "bos_token", "eos_token"};
    std::vector<std::string> names = template_.variables();
    std::erase_if(names, [&](const std::string& name) { return std::ranges::find(kOurs, name) != kOurs.end(); });
    return names;
}

}  // namespace slipstream::tools
