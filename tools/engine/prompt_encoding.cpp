#include "tools/engine/prompt_encoding.h"

#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

StreamingDetokenizer::Start start_behind(const std::string& text) {
    return text.empty() ? StreamingDetokenizer::Start::OfText : StreamingDetokenizer::Start::Continued;
}

}  // namespace

PromptText render_prompt(const PromptTemplate& form, std::span<const Message> messages,
                         const std::atomic<bool>* cancel) {
    try {
        return form.render(messages, cancel);
    } catch (const TemplateError&) {
        if (cancel != nullptr && cancel->load()) throw Interrupted();
        throw;
    }
}

EncodedPrompt encode_rendered(const PromptText& prompt, const Tokenizer& tokenizer) {
    return {tokenizer.encode_prompt(prompt.text, prompt.literal_at), start_behind(prompt.text)};
}

EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer, SpecialTokens special) {
    return {tokenizer.encode_prompt(text, special), start_behind(text)};
}

}  // namespace slipstream::tools
