#include "tools/chat_form.h"

#include <utility>

#include "kernels/base/check.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kParagraph = "\n\n";

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

ChatForm::ChatForm(std::optional<PromptTemplate> prompt_template, const Tokenizer& tokenizer)
    : template_(std::move(prompt_template)), tokenizer_(&tokenizer) {}

std::string ChatForm::prompt_text(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                  const std::string& begun) const {
    CHECK(!messages.empty() && messages.back().role == "user", "{} messages", messages.size());
    std::string text;
    if (template_) {
        std::vector<Message> all;
        if (system) all.push_back({"system", *system});
        all.insert(all.end(), messages.begin(), messages.end());
        text = template_->render(all);
    } else {
        if (system) text = *system;
        for (const Message& message : messages) {
            if (message.role == "user" && !text.empty()) text += kParagraph;
            text += message.content;
        }
    }
    return text + begun;
}

ChatPrompt ChatForm::prompt(const std::optional<std::string>& system, const std::vector<Message>& messages,
                            const std::string& begun) const {
    const std::string text = prompt_text(system, messages, begun);
    return {tokenizer_->encode_prompt(text, template_ ? SpecialTokens::Parse : SpecialTokens::AsText),
            text.empty() ? StreamingDetokenizer::Start::OfText : StreamingDetokenizer::Start::Continued};
}

TextGenerationOptions ChatForm::with_stops(TextGenerationOptions options) const {
    if (!template_ && options.stops.empty()) options.stops.emplace_back(kParagraph);
    return options;
}

std::optional<std::string> ChatForm::bridge(const std::string& text, const TextGenerationOptions& options) const {
    if (template_ || !options.stops.empty() || !is_blank(text)) return std::nullopt;
    return std::string(kParagraph);
}

}  // namespace slipstream::tools
