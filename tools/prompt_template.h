// A chat template bound to a model: messages in, the prompt as text out, with the variables that stay the same over a
// conversation (beginning and end tokens, --template-arg, the time at which it began).
#pragma once

#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/template/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

namespace slipstream::tools {

/// One turn of a conversation; `role` is "system", "user" or "assistant".
struct Message {
    std::string role;
    std::string content;
    bool operator==(const Message&) const = default;
};

using TemplateArguments = std::vector<std::pair<std::string, TemplateValue>>;

class PromptTemplate {
public:
    PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer);

    /// The prompt that asks for the next answer. It spells the beginning-of-text token only where the template does:
    /// Tokenizer::encode_prompt() with SpecialTokens::Parse adds it where it is missing. Throws TemplateError.
    [[nodiscard]] std::string render(std::span<const Message> messages) const;

    [[nodiscard]] const std::string& name() const { return template_.name(); }

private:
    ChatTemplate template_;
    TemplateArguments arguments_;
    std::optional<std::string> bos_token_, eos_token_;
    std::tm began_{};
};

}  // namespace slipstream::tools
