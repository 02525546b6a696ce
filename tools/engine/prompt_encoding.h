// From a prompt's text to what the model reads: the one place where that happens, so that no caller can forget that
// what people say is text, whatever it spells. Control tokens are parsed only where a chat template, or whoever runs
// the program, wrote them (runtime/text/chat/prompt_template.h); a raw prompt has none.
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

// All throw Interrupted soon after `cancel`, which may be null, is true.

/// A conversation through its template. Throws TemplateError.
[[nodiscard]] MarkedText render_prompt(const PromptTemplate& form, std::span<const Message> messages,
                                       const std::atomic<bool>* cancel);
/// A conversation that a template rendered.
[[nodiscard]] EncodedPrompt encode_rendered(const MarkedText& prompt, const Tokenizer& tokenizer,
                                            const std::atomic<bool>* cancel);
/// A text as it stands; empty is the beginning of a text and nothing else. `special`: whether spellings of control
/// tokens in it stand for them, which only who wrote the whole text may ask for.
[[nodiscard]] EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer, SpecialTokens special,
                                       const std::atomic<bool>* cancel);

}  // namespace slipstream::tools
