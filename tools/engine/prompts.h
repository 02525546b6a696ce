// Prompts: from a text or a conversation to the token ids that a model reads.
//
// The chat template is the one that the options name (a file, one of several of the model, or a family), else the
// model's own, else, for a chat, a family that the model's vocabulary or name suggests. Without a template, a chat is a
// plain text in which user and model take turns by paragraphs: the model continues after the user's line and ends its
// turn with the paragraph, and the user's next line begins a new one.
//
// Prompts become ids here and nowhere else (prompt_encoding.cpp), so that no caller can forget that what people say is
// text, even if it spells control tokens. Control tokens are parsed only where a chat template or the user of the
// program wrote them (runtime/text/chat/prompt_template.h); a raw prompt has none.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/request/conversation.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::tools {

struct EngineCallbacks;
class OpenedModel;
struct TemplateSettings;

/// For one completion: returns the named template or the model's own (of several: "tool_use" if --template-arg gives
/// tools, else "default"), and reports it as a note; no value if there is none: the prompt is then raw text. Throws
/// UsageError if a demanded argument or system text would then have no effect; RequestError if the name is unknown or
/// the model's own template cannot be parsed.
[[nodiscard]] std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                const Tokenizer& tokenizer,
                                                                const EngineCallbacks& callbacks);

/// For a chat: returns the named template or the model's own, as completion_template() does; if the model has none, the
/// template of the family that its vocabulary or name suggests. Returns no value if nothing suggests one, or with
/// --no-template: the conversation is then plain text in turns. Throws as completion_template().
[[nodiscard]] std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                  const Tokenizer& tokenizer,
                                                                  const EngineCallbacks& callbacks);

struct EncodedPrompt {
    std::vector<TokenId> tokens;
    StreamingDetokenizer::Start start = StreamingDetokenizer::Start::Continued;
};

// All functions throw Interrupted soon after *cancel turned true; `cancel` may be null.

/// Renders a conversation by its template; variables in `more` override those of the template. Throws TemplateError.
[[nodiscard]] MarkedText render_prompt(const PromptTemplate& form, std::span<const Message> messages,
                                       const TemplateArguments& more, const std::atomic<bool>* cancel);
/// Encodes a conversation that a template rendered.
[[nodiscard]] EncodedPrompt encode_rendered(const MarkedText& prompt, const Tokenizer& tokenizer,
                                            const std::atomic<bool>* cancel);
/// Encodes `text` without a template; an empty text gives only the beginning of a text. `special` says whether
/// spellings of control tokens in it are parsed as such; allow this only if one author wrote the whole text.
[[nodiscard]] EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer, SpecialTokens special,
                                       const std::atomic<bool>* cancel);

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
    /// beginning of the answer. A system text from a file is encoded as text, without control tokens. `more` are
    /// variables of the template. Throws TemplateError, Interrupted.
    [[nodiscard]] EncodedPrompt prompt(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                       const std::string& begun = {}, SystemSource source = SystemSource::User,
                                       const TemplateArguments& more = {}) const;
    /// Returns the prompt of prompt() as text, before it is encoded. What the conversation said is marked, so that it
    /// cannot spell control tokens.
    [[nodiscard]] MarkedText prompt_text(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                         const std::string& begun = {}, SystemSource source = SystemSource::User,
                                         const TemplateArguments& more = {}) const;
    /// Returns the prompt for the answer in the conversation of a request, which make_conversation() made for
    /// prompt_template(). encode_rendered() makes ids of it. Throws TemplateError, Interrupted.
    [[nodiscard]] ConversationPrompt prompt_text(const Conversation& conversation) const;
    /// Returns the template; null: prompts are plain text in turns.
    [[nodiscard]] const PromptTemplate* prompt_template() const { return template_ ? &*template_ : nullptr; }
    /// Returns whether the template reads the variable `name`.
    [[nodiscard]] bool reads(std::string_view name) const { return template_ && template_->reads(name); }
    /// Returns the variable with which the template turns thoughts on and off; an empty text if it reads none.
    [[nodiscard]] std::string_view thinking_variable() const {
        return template_ ? template_->thinking_variable() : std::string_view();
    }
    /// Returns how the model writes thoughts; a form without marks if there is no template.
    [[nodiscard]] AnswerForm answer_form() const { return template_ ? template_->answer_form() : AnswerForm{}; }
    /// Returns whether `system` spells control tokens: then its tokens differ between SystemSource::User and
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
