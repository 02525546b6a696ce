#include "tools/serve/prompt_maker.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/interrupted.h"
#include "tools/serve/api_error.h"
#include "tools/serve/request_json.h"

namespace slipstream::tools {

namespace {

using jinja::Kind;

[[noreturn]] void refuse(std::size_t message, std::string_view field, std::string_view what) {
    const std::string name = fmt::format("messages[{}].{}", message, field);
    throw ApiError::invalid(name, fmt::format("{}: {}", name, what));
}

std::string joined_content(const TemplateValue* content, std::size_t message) {
    if (content == nullptr) return {};
    if (content->is_text()) return std::string(content->view());
    if (!content->is(Kind::List)) refuse(message, "content", "a text or a list of text parts is expected");
    std::string text;
    for (const TemplateValue& part : content->items()) {
        const bool is_text =
            part.is(Kind::Dict) && RequestFields(part, "content.").text("type").value_or("text") == "text";
        if (!is_text) refuse(message, "content", "only text parts are served");
        const auto words = RequestFields(part, "content.").text("text");
        if (!words) refuse(message, "content", "a part without text");
        text += (text.empty() ? "" : "\n") + *words;
    }
    return text;
}

std::vector<Message> messages_of(const Conversation& conversation) {
    std::vector<Message> messages;
    for (const TemplateValue& value : conversation.messages.items()) {
        const std::size_t n = messages.size();
        if (!value.is(Kind::Dict)) throw ApiError::invalid("messages", fmt::format("messages[{}] is not an object", n));
        const RequestFields fields(value, fmt::format("messages[{}].", n));
        std::string role = fields.text("role").value_or("");
        if (role == "developer") role = "system";
        constexpr std::array<std::string_view, 3> kRoles{"system", "user", "assistant"};
        if (std::ranges::find(kRoles, role) == kRoles.end())
            refuse(n, "role", "system, developer, user or assistant is expected");
        messages.push_back({std::move(role), joined_content(fields.find("content"), n), true});
    }
    return messages;
}

}  // namespace

PromptMaker::PromptMaker(const Tokenizer& tokenizer, std::optional<PromptTemplate> prompt_template,
                         GenerationDefaults defaults)
    : tokenizer_(tokenizer),
      template_(std::move(prompt_template)),
      form_(template_, tokenizer),
      defaults_(std::move(defaults)) {}

MarkedText PromptMaker::rendered(const Conversation& conversation, const std::atomic<bool>* cancel) const {
    std::vector<Message> messages = messages_of(conversation);
    if (template_) {
        try {
            return render_prompt(*template_, messages, cancel);
        } catch (const TemplateError& error) {
            throw ApiError::invalid("messages", error.what());
        }
    }
    std::optional<std::string> system;
    if (messages.front().role == "system") {
        system = messages.front().content;
        messages.erase(messages.begin());
    }
    if (messages.empty() || messages.back().role != "user")
        throw ApiError::invalid("messages", "the last message must be the user's: this model has no chat template");
    return form_.prompt_text(system, messages, {}, SystemSource::File);
}

EncodedPrompt PromptMaker::encoded(const TextRequest& request, const std::atomic<bool>* cancel) const {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt))
        return {*ids, StreamingDetokenizer::Start::Continued};
    if (const auto* text = std::get_if<std::string>(&request.prompt))
        return encode_raw(*text, tokenizer_, SpecialTokens::AsText, cancel);
    return encode_rendered(rendered(std::get<Conversation>(request.prompt), cancel), tokenizer_, cancel);
}

TextTask PromptMaker::task(const TextRequest& request, const std::atomic<bool>* cancel) const {
    TextTask task{.prompt = encoded(request, cancel),
                  .sampling = resolve_sampling(request.sampling, defaults_, {}),
                  .ignore_end = request.sampling.ignore_end,
                  .text = request.text,
                  .n_logprobs = request.n_logprobs};
    if (request.dialect == Dialect::Chat) task.text = form_.with_stops(std::move(task.text));
    return task;
}

std::vector<TokenId> PromptMaker::tokenized(const std::string& text, Bos bos, SpecialTokens special,
                                            const std::atomic<bool>* cancel) const {
    return bos == Bos::Added ? encode_raw(text, tokenizer_, special, cancel).tokens
                             : tokenizer_.encode(text, special, cancel);
}

}  // namespace slipstream::tools
