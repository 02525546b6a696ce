// ChatForm: the prompt that a model reads for a conversation. It is made by a chat template; without one, it is a plain
// text in which user and model take turns by paragraphs: the model continues after the user's line and ends its turn
// with the paragraph, and the user's next line begins a new one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "tools/engine/prompt_encoding.h"

namespace slipstream::tools {

/// Who wrote the system text: the user, who may spell control tokens in it, or a file of unknown origin, which may not.
enum class SystemSource : std::uint8_t { User, File };

class ChatForm {
public:
    /// `tokenizer` and `cancel` must outlive this object; if *cancel turns true, making a prompt is interrupted.
    /// Without a template, prompts are plain text in turns.
    ChatForm(std::optional<PromptTemplate> prompt_template, const Tokenizer& tokenizer,
             const std::atomic<bool>* cancel = nullptr);

    [[nodiscard]] bool is_one_text() const { return !template_; }
    /// Returns the prompt for the answer to `messages`, whose last must be the user's (CHECKed). `begun` is the
    /// beginning of the answer. A system text from a file is encoded as text, without control tokens. Throws
    /// TemplateError, Interrupted.
    [[nodiscard]] EncodedPrompt prompt(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                       const std::string& begun = {}, SystemSource source = SystemSource::User) const;
    /// Returns the prompt of prompt() as text, before it is encoded. What the conversation said is marked, so that it
    /// cannot spell control tokens.
    [[nodiscard]] MarkedText prompt_text(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                         const std::string& begun = {}, SystemSource source = SystemSource::User) const;
    /// Whether `system` spells control tokens: then its tokens differ between SystemSource::User and
    /// SystemSource::File.
    [[nodiscard]] bool spells_control_tokens(const std::string& system) const;
    /// Returns `options` with the stop string that ends a turn: that of the template, if the vocabulary has no token
    /// for it; without a template the end of a paragraph, if `options` has no stop string.
    [[nodiscard]] TextGenerationOptions with_stops(TextGenerationOptions options) const;
    /// If `text`, an answer that ended at a stop string, is only the white space before a paragraph, returns what to
    /// append before the answer continues; else no value. `options` are those before with_stops().
    [[nodiscard]] std::optional<std::string> bridge(const std::string& text,
                                                    const TextGenerationOptions& options) const;

private:
    std::optional<PromptTemplate> template_;
    const Tokenizer* tokenizer_;
    const std::atomic<bool>* cancel_;
};

}  // namespace slipstream::tools
