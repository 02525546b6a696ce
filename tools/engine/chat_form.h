// What a model reads of a conversation: through a chat template, or, where there is none, as one text that user and
// model write in turns, a paragraph each: the model goes on where the user's line ends, and ends its turn with the
// paragraph; the user's next line begins another.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "tools/engine/prompt_encoding.h"

namespace slipstream::tools {

/// Who wrote the system text: the user, who may spell control tokens in it, or a file that anybody may have written.
enum class SystemSource : std::uint8_t { User, File };

class ChatForm {
public:
    /// `tokenizer` outlives this, and `cancel`, which ends the making of a prompt. No template: one text in turns.
    ChatForm(std::optional<PromptTemplate> prompt_template, const Tokenizer& tokenizer,
             const std::atomic<bool>* cancel = nullptr);

    [[nodiscard]] bool is_one_text() const { return !template_; }
    /// The prompt for the answer that follows `messages`, of which the last is the user's; `begun` is what the answer
    /// has already. A system text of a file spells no control token. Throws TemplateError, Interrupted.
    [[nodiscard]] EncodedPrompt prompt(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                       const std::string& begun = {}, SystemSource source = SystemSource::User) const;
    /// The same as text; what was said is marked.
    [[nodiscard]] MarkedText prompt_text(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                         const std::string& begun = {}, SystemSource source = SystemSource::User) const;
    /// Whether `system` has other tokens as the text of a file: it spells control tokens.
    [[nodiscard]] bool spells_control_tokens(const std::string& system) const;
    /// `options` with what ends a turn: the template's, where the vocabulary has no token for it; the paragraph's end,
    /// where a text is told in turns and no other is given.
    [[nodiscard]] TextGenerationOptions with_stops(TextGenerationOptions options) const;
    /// Whether an answer of `text` that ended at a stop text is but the space before a paragraph, and goes on. What to
    /// put behind it then.
    [[nodiscard]] std::optional<std::string> bridge(const std::string& text,
                                                    const TextGenerationOptions& options) const;

private:
    std::optional<PromptTemplate> template_;
    const Tokenizer* tokenizer_;
    const std::atomic<bool>* cancel_;
};

}  // namespace slipstream::tools
