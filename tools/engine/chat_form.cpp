#include "tools/engine/prompts.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/chat/plain_turns.h"

namespace slipstream::tools {

namespace {

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

ChatForm::ChatForm(std::optional<PromptTemplate> prompt_template, const Tokenizer& tokenizer,
                   const std::atomic<bool>* cancel)
    : template_(std::move(prompt_template)), tokenizer_(&tokenizer), cancel_(cancel) {}

MarkedText ChatForm::prompt_text(const std::optional<std::string>& system, const std::vector<Message>& messages,
                                 const std::string& begun, SystemSource source, const TemplateArguments& more) const {
    CHECK(!messages.empty() && messages.back().role == "user", "{} messages", messages.size());
    MarkedText prompt;
    if (template_) {
        std::vector<Message> all;
        if (system) all.push_back({"system", *system, source == SystemSource::File});
        all.insert(all.end(), messages.begin(), messages.end());
        prompt = render_prompt(*template_, all, more, cancel_);
    } else {
        if (system && source == SystemSource::File)
            say(prompt, *system);
        else if (system)
            prompt.bytes = *system;
        for (const Message& message : messages) append_turn(prompt, message.role, message.content);
    }
    say(prompt, begun);
    return prompt;
}

EncodedPrompt ChatForm::prompt(const std::optional<std::string>& system, const std::vector<Message>& messages,
                               const std::string& begun, SystemSource source, const TemplateArguments& more) const {
    return encode_rendered(prompt_text(system, messages, begun, source, more), *tokenizer_, cancel_);
}

ConversationPrompt ChatForm::prompt_text(const Conversation& conversation) const {
    try {
        return render_conversation(prompt_template(), conversation, cancel_);
    } catch (const TemplateError&) {
        throw_if_cancelled(cancel_);
        throw;
    }
}

bool ChatForm::spells_control_tokens(const std::string& system) const {
    if (system.empty()) return false;
    const MarkedText said{.bytes = system, .said = {{0, system.size()}}};
    return encode_rendered(said, *tokenizer_, cancel_).tokens !=
           encode_rendered({.bytes = system, .said = {}}, *tokenizer_, cancel_).tokens;
}

TextGenerationOptions ChatForm::with_stops(TextGenerationOptions options) const {
    if (template_ && template_->turn_end()) options.stops.push_back(*template_->turn_end());
    if (!template_ && options.stops.empty()) options.stops.emplace_back(kParagraph);
    return options;
}

std::optional<std::string> ChatForm::bridge(const std::string& text, const TextGenerationOptions& options) const {
    if (template_ || !options.stops.empty() || !is_blank(text)) return std::nullopt;
    return std::string(kParagraph);
}

}  // namespace slipstream::tools
