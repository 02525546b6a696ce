#include "tools/prompt_template.h"

namespace slipstream::tools {

namespace {

std::optional<std::string> spelling(const Tokenizer& tokenizer, std::optional<TokenId> id) {
    return id ? std::optional(std::string(tokenizer.piece(*id))) : std::nullopt;
}

}  // namespace

PromptTemplate::PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer)
    : template_(std::move(chat_template)),
      arguments_(std::move(arguments)),
      bos_token_(spelling(tokenizer, tokenizer.bos_id())),
      eos_token_(spelling(tokenizer, tokenizer.eos_id())) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &began_);
}

std::string PromptTemplate::render(std::span<const Message> messages) const {
    std::vector<TemplateValue> list;
    list.reserve(messages.size());
    for (const Message& message : messages) list.push_back(chat_message(message.role, message.content));
    return template_.render({.messages = TemplateValue::list(std::move(list)),
                             .add_generation_prompt = true,
                             .bos_token = bos_token_,
                             .eos_token = eos_token_,
                             .arguments = arguments_,
                             .now = began_});
}

}  // namespace slipstream::tools
