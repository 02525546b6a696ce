// Encodes prompts, from text to tokens. This is the only place that does so, so that no caller can forget that what
// people say is text, even if it spells control tokens. Control tokens are parsed only where a chat template or the
// user of the program wrote them (runtime/text/chat/prompt_template.h); a raw prompt has none.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::tools {

struct EncodedPrompt {
    std::vector<TokenId> tokens;
    StreamingDetokenizer::Start start = StreamingDetokenizer::Start::Continued;
};

// All functions throw Interrupted soon after *cancel turned true; `cancel` may be null.

/// Renders a conversation by its template. Throws TemplateError.
[[nodiscard]] MarkedText render_prompt(const PromptTemplate& form, std::span<const Message> messages,
                                       const std::atomic<bool>* cancel);
/// Encodes a conversation that a template rendered.
[[nodiscard]] EncodedPrompt encode_rendered(const MarkedText& prompt, const Tokenizer& tokenizer,
                                            const std::atomic<bool>* cancel);
/// Encodes `text` without a template; an empty text gives only the beginning of a text. `special` says whether
/// spellings of control tokens in it are parsed as such; allow this only if one author wrote the whole text.
[[nodiscard]] EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer, SpecialTokens special,
                                       const std::atomic<bool>* cancel);

}  // namespace slipstream::tools
