// The one form that requests of all dialects are parsed into: what is continued, how tokens are drawn, where the text
// ends, and in which shape the client wants the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/request/conversation.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

enum class Dialect : std::uint8_t {
    Chat,         // /v1/chat/completions
    Completions,  // /v1/completions
    Messages,     // /v1/messages, of Anthropic
    Responses,    // /v1/responses, of OpenAI
    Llama,        // /completion, of llama-server
};

struct TextRequest {
    Dialect dialect = Dialect::Chat;
    /// A conversation, a raw text, or the ids of a raw text.
    std::variant<RequestedConversation, std::string, std::vector<TokenId>> prompt;
    SamplingSettings sampling{};
    TextGenerationOptions text{};
    SpecialTokens special = SpecialTokens::AsText;  // of a raw text: whether it may spell control tokens
    std::optional<int> n_logprobs{};  // alternatives of each token; no value: log probabilities are not wanted
    bool stream = false;
    bool include_usage = false;    // a stream's last chunk has the usage
    bool return_progress = false;  // a stream tells how far the prompt is
    bool one_call = false;         // the answer ends after its first tool call
};

/// What a request is parsed with.
struct RequestContext {
    std::int64_t vocab = 0;
    // Used where the request does not set a field itself.
    SamplingSettings sampling{};
    TextGenerationOptions text{};
    std::function<void(std::string_view field)> on_ignored{};  // a field that has no effect here
};

/// Parses the body of a request. Every number is checked against its range. Throws ApiError, which names the field.
[[nodiscard]] TextRequest parse_text_request(Dialect dialect, const TemplateValue& body, const RequestContext& context);

/// Returns the conversation of a body with the fields of chat completions; its parts are checked when its prompt is
/// made. Throws ApiError if there are no messages.
[[nodiscard]] RequestedConversation parse_conversation(const TemplateValue& body);

}  // namespace slipstream::tools
