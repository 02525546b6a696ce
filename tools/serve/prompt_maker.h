// From a request to the token ids that the model reads, and to the reader of its answer: the chat template for
// conversations (runtime/text/request/conversation.h, as `generate --messages`), raw text for completions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/request/conversation.h"
#include "tools/engine/engine.h"
#include "tools/serve/text_engine.h"
#include "tools/serve/text_request.h"

namespace slipstream::tools {

/// A request that is ready to run.
struct PreparedText {
    TextTask task;
    /// Divides the answer into content, thoughts and tool calls; null: all of it is content.
    std::unique_ptr<AnswerReader> reader;
};

class PromptMaker {
public:
    /// Without a template, the turns of a conversation become plain text. `tokenizer` must outlive this object.
    PromptMaker(const Tokenizer& tokenizer, std::optional<PromptTemplate> prompt_template, GenerationDefaults defaults);

    // All functions throw FieldError or TemplateError if a conversation is malformed or the template refuses it, and
    // Interrupted soon after *cancel turned true.

    /// Returns the prompt's text for a conversation, as the chat template renders it. Throws Interrupted soon after
    /// *cancel turned true.
    [[nodiscard]] std::string rendered(const RequestedConversation& conversation,
                                       const std::atomic<bool>* cancel) const;
    /// Returns the task of a request, with a seed that is drawn if the request has none.
    [[nodiscard]] PreparedText prepared(const TextRequest& request, const std::atomic<bool>* cancel) const;

    enum class Bos : std::uint8_t { Left, Added };
    /// Returns the token ids of `text`; before them the token that begins a prompt, if `bos` is Bos::Added and the
    /// model has one.
    [[nodiscard]] std::vector<TokenId> tokenized(const std::string& text, Bos bos, SpecialTokens special,
                                                 const std::atomic<bool>* cancel) const;
    [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
    /// Returns the Jinja text of the chat template; empty if there is none.
    [[nodiscard]] std::string_view template_source() const {
        return form() == nullptr ? std::string_view() : form()->source();
    }

private:
    [[nodiscard]] const PromptTemplate* form() const { return template_ ? &*template_ : nullptr; }
    void prepare_chat(const RequestedConversation& requested, const std::atomic<bool>* cancel,
                      PreparedText& prepared) const;

    const Tokenizer& tokenizer_;
    std::optional<PromptTemplate> template_;
    ChatForm turns_;
    GenerationDefaults defaults_;
};

}  // namespace slipstream::tools
