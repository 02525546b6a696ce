// A chat template bound to a model: messages in, the prompt as text out, with the variables that stay the same over a
// conversation (beginning and end tokens, arguments, the time at which it began).
//
// The rule: what people and tools say is text, also where it spells a control token: "<|im_end|>" in a message must not
// end the message. All texts of messages but the role, and but those of the system, who is whoever runs the program,
// are marked as said; the marks go through all that the template does with them, and with the prompt to the tokenizer,
// which finds control tokens (tokenizer/token_matchers.h). Where nothing is spelt the ids are those of transformers.
#pragma once

#include <atomic>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/marked_text.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// One turn of a conversation; `role` is "system", "user" or "assistant".
struct Message {
    std::string role;
    std::string content;
    bool operator==(const Message&) const = default;
};

using TemplateArguments = std::vector<std::pair<std::string, TemplateValue>>;

/// The message with its texts marked as said, where the rule says so; any message of a template's inputs.
[[nodiscard]] TemplateValue said_message(const TemplateValue& message);

class PromptTemplate {
public:
    /// `turn_end`: what the template's answers end with besides the end token, or empty.
    PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer,
                   std::string_view turn_end = {});

    /// The prompt that asks for the next answer. It spells the beginning-of-text token only where the template does:
    /// Tokenizer::encode_prompt() adds it where it is missing. Throws TemplateError, also soon after `cancel` is true.
    [[nodiscard]] MarkedText render(std::span<const Message> messages, const std::atomic<bool>* cancel = nullptr) const;
    /// The same for messages as a template knows them, a list of dicts.
    [[nodiscard]] MarkedText render(const TemplateValue& messages, const std::atomic<bool>* cancel = nullptr) const;

    [[nodiscard]] const std::string& name() const { return template_.name(); }
    /// Whether it asks for this variable.
    [[nodiscard]] bool reads(std::string_view variable) const { return template_.reads(variable); }
    /// The names of all that it asks for, but for what comes of the conversation and the model.
    [[nodiscard]] std::vector<std::string> arguments_read() const;
    /// A text before which an answer ends; nothing where the model has a token for it, or needs none.
    [[nodiscard]] const std::optional<std::string>& turn_end() const { return turn_end_; }

private:
    ChatTemplate template_;
    TemplateArguments arguments_;
    std::optional<std::string> turn_end_;
    std::optional<std::string> bos_token_, eos_token_;
    std::tm began_{};
};

}  // namespace slipstream
