#include "tools/engine/prompts.h"

#include "kernels/base/interrupted.h"

namespace slipstream::tools {

namespace {

StreamingDetokenizer::Start start_behind(const std::string& text) {
    return text.empty() ? StreamingDetokenizer::Start::OfText : StreamingDetokenizer::Start::Continued;
}

}  // namespace

MarkedText render_prompt(const PromptTemplate& form, std::span<const Message> messages, const TemplateArguments& more,
                         const std::atomic<bool>* cancel) {
    try {
        return form.render(messages, more, cancel);
    } catch (const TemplateError&) {
        throw_if_cancelled(cancel);
        throw;
    }
}

EncodedPrompt encode_rendered(const MarkedText& prompt, const Tokenizer& tokenizer, const std::atomic<bool>* cancel) {
    return {tokenizer.encode_prompt(prompt, cancel), start_behind(prompt.bytes)};
}

EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer, SpecialTokens special,
                         const std::atomic<bool>* cancel) {
    return {tokenizer.encode_prompt(text, special, cancel), start_behind(text)};
}

}  // namespace slipstream::tools
