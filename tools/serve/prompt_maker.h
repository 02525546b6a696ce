// From a request to the token ids that the model reads: the chat template for conversations, raw text for completions.
// Everything in a request is said text, the system message too: no client can write a control token.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/engine/engine.h"
#include "tools/serve/text_engine.h"
#include "tools/serve/text_request.h"

namespace slipstream::tools {

class PromptMaker {
public:
    /// Without a template, conversations are plain text in turns. `tokenizer` must outlive this object.
    PromptMaker(const Tokenizer& tokenizer, std::optional<PromptTemplate> prompt_template, GenerationDefaults defaults);

    /// Returns the text that the model reads of a conversation. Throws ApiError if messages are malformed or the
    /// template refuses them; Interrupted soon after *cancel turned true.
    [[nodiscard]] MarkedText rendered(const Conversation& conversation, const std::atomic<bool>* cancel) const;
    [[nodiscard]] EncodedPrompt encoded(const TextRequest& request, const std::atomic<bool>* cancel) const;
    /// The whole task: prompt, sampling with a seed, stop texts. Throws as above.
    [[nodiscard]] TextTask task(const TextRequest& request, const std::atomic<bool>* cancel) const;

    enum class Bos : std::uint8_t { Left, Added };
    /// Returns the ids of a text, with the token that begins a prompt in front if `bos` says so and the model has one.
    [[nodiscard]] std::vector<TokenId> tokenized(const std::string& text, Bos bos, SpecialTokens special,
                                                 const std::atomic<bool>* cancel) const;
    [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }

private:
    const Tokenizer& tokenizer_;
    std::optional<PromptTemplate> template_;
    ChatForm form_;
    GenerationDefaults defaults_;
};

}  // namespace slipstream::tools
