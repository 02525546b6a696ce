// A chat template bound to a model: messages in, the prompt as text out, with the variables that stay the same over a
// conversation (beginning and end tokens, --template-arg, the time at which it began). What user and assistant say is
// text, whatever it spells (literal_text.h); the system text is whoever runs the program, and may name control tokens.
#pragma once

#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/chat/literal_text.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/options/template_options.h"

namespace slipstream::tools {

/// One turn of a conversation; `role` is "system", "user" or "assistant".
struct Message {
    std::string role;
    std::string content;
    bool operator==(const Message&) const = default;
};

class PromptTemplate {
public:
    /// `turn_end`: what the template's answers end with besides the end token, or empty.
    PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer,
                   std::string_view turn_end = {});

    /// The prompt that asks for the next answer. It spells the beginning-of-text token only where the template does:
    /// Tokenizer::encode_prompt() adds it where it is missing. Throws TemplateError; RequestError where a message
    /// spells a control token and the template does with it what keeps that from being told from its own; Interrupted
    /// after a signal.
    [[nodiscard]] PromptText render(std::span<const Message> messages) const;

    [[nodiscard]] const std::string& name() const { return template_.name(); }
    /// What of --template-arg it reads.
    [[nodiscard]] bool reads(std::string_view variable) const { return template_.reads(variable); }
    /// The names of those, but for what comes of the conversation and the model.
    [[nodiscard]] std::vector<std::string> arguments_read() const;
    /// A text before which an answer ends; nothing where the model has a token for it, or needs none.
    [[nodiscard]] const std::optional<std::string>& turn_end() const { return turn_end_; }

private:
    ChatTemplate template_;
    TemplateArguments arguments_;
    LiteralMarker control_tokens_;
    std::optional<std::string> turn_end_;
    std::optional<std::string> bos_token_, eos_token_;
    std::tm began_{};
};

}  // namespace slipstream::tools
