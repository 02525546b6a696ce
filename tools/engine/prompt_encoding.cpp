#include "tools/engine/prompt_encoding.h"

namespace slipstream::tools {

namespace {

StreamingDetokenizer::Start start_behind(const std::string& text) {
    return text.empty() ? StreamingDetokenizer::Start::OfText : StreamingDetokenizer::Start::Continued;
}

}  // namespace

EncodedPrompt encode_rendered(const PromptText& prompt, const Tokenizer& tokenizer) {
    return {tokenizer.encode_prompt(prompt.text, prompt.literal_at), start_behind(prompt.text)};
}

EncodedPrompt encode_raw(const std::string& text, const Tokenizer& tokenizer) {
    return {tokenizer.encode_prompt(text, SpecialTokens::AsText), start_behind(text)};
}

}  // namespace slipstream::tools
