// A chat template bound to a model: turns messages into the text of a prompt, with the variables that do not change
// during a conversation (beginning and end tokens, arguments, the time at which it began).
//
// Rule: texts of people and tools are only text, even if they spell a control token; "<|im_end|>" in a message must not
// end the message. So all texts of a message except its role are marked as said. Messages of the system are not marked,
// since the system turn belongs to the user who runs the program, unless the caller says that it does not (a chat that
// was read from a file). The marks are kept through the template and passed
// with the prompt to the tokenizer, which finds control tokens (tokenizer/token_matchers.h). If no message spells a
// control token, the ids are those of transformers.
#pragma once

#include <array>
#include <atomic>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/answer/answer_form.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/marked_text.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// One turn of a conversation. `role` is "system", "user" or "assistant".
struct Message {
    std::string role;
    std::string content;
    // True: the content is marked as said even if the role is "system"; the content of other roles is always marked
    bool is_said = false;
    // Thought of an answer, passed to the template as reasoning_content; the template may leave it out. Empty: none.
    std::string thought{};
    bool operator==(const Message&) const = default;
};

using TemplateArguments = std::vector<std::pair<std::string, TemplateValue>>;

/// Returns `value` with all its texts marked as said (from a message, so that no control token is made of them), those
/// inside lists and dicts included. A text of which a part is said keeps its marks.
[[nodiscard]] TemplateValue said_value(const TemplateValue& value);

/// Returns `message`, an element of TemplateInputs::messages, with all its texts except the role marked as said, so
/// that no control token is made of them. A message whose role is "system" or "developer" is returned unchanged.
[[nodiscard]] TemplateValue said_message(const TemplateValue& message);

/// Names of the variables with which templates turn thoughts on and off. A template that reads several goes by the
/// first.
inline constexpr std::array<std::string_view, 2> kThinkingVariables{"enable_thinking", "thinking"};

class PromptTemplate {
public:
    /// `turn_end` is the text that ends an answer in this template, besides the end token, or empty. `tokenizer` is
    /// used during construction only.
    PromptTemplate(ChatTemplate chat_template, TemplateArguments arguments, const Tokenizer& tokenizer,
                   std::string_view turn_end = {});

    /// Returns the prompt that asks for the next answer. It contains the beginning-of-text token only if the template
    /// writes it; Tokenizer::encode_prompt() adds it otherwise. Variables in `more` override those of the constructor.
    /// Throws TemplateError if the template fails, and soon after *cancel turned true.
    [[nodiscard]] MarkedText render(std::span<const Message> messages, const TemplateArguments& more = {},
                                    const std::atomic<bool>* cancel = nullptr) const;
    /// Returns the prompt for messages in the form that templates take: a list of dicts. Throws as the other render()
    /// does, and if `messages` is not a list.
    [[nodiscard]] MarkedText render(const TemplateValue& messages, const TemplateArguments& more = {},
                                    const std::atomic<bool>* cancel = nullptr) const;

    [[nodiscard]] const std::string& name() const { return template_.name(); }
    /// Returns the template's Jinja text.
    [[nodiscard]] const std::string& source() const { return template_.source(); }
    /// Returns whether the template reads `variable`.
    [[nodiscard]] bool reads(std::string_view variable) const { return template_.reads(variable); }
    /// Returns the name of the variable with which the template turns thoughts on and off, "enable_thinking" or
    /// "thinking" (Granite 3.3); an empty text if it reads neither. A variable that the template only sets itself
    /// counts too: it is not told apart from one with a default.
    [[nodiscard]] std::string_view thinking_variable() const;
    /// Returns how the model writes thoughts and tool calls, by the marks of the template and the vocabulary.
    [[nodiscard]] const AnswerForm& answer_form() const { return answer_form_; }
    /// Returns the names of the variables that the template reads, sorted, without those that the conversation and the
    /// model determine: messages, add_generation_prompt, bos_token, eos_token.
    [[nodiscard]] std::vector<std::string> arguments_read() const;
    /// Returns the text before which an answer must be ended, or nullopt if the model has an end token that is spelt
    /// so, or no such text is needed.
    [[nodiscard]] const std::optional<std::string>& turn_end() const { return turn_end_; }

private:
    ChatTemplate template_;
    TemplateArguments arguments_;
    AnswerForm answer_form_;
    std::optional<std::string> turn_end_;
    std::optional<std::string> bos_token_, eos_token_;
    std::tm began_{};
};

}  // namespace slipstream
