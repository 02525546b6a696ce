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
    SpecialTokens special = SpecialTokens::AsText;  // whether a raw text may spell control tokens
    std::optional<int> n_logprobs{};  // alternatives of each token; no value: log probabilities are not wanted
    bool stream = false;
    bool include_usage = false;    // a stream has a last event with the usage
    bool return_progress = false;  // a stream has events with the prompt's progress
    bool one_call = false;         // the answer ends after its first tool call
};

/// What parsing needs besides the request: the size of the vocabulary (token ids), defaults, and a callback.
struct RequestContext {
    std::int64_t vocab = 0;
    // Defaults for the fields that a request does not set: `sampling` and `text`.
    SamplingSettings sampling{};
    TextGenerationOptions text{};
    std::function<void(std::string_view field)> on_ignored{};  // gets each field that has no effect
};

/// Parses the body of a request. Every number is checked against its range. Throws ApiError, which names the field.
[[nodiscard]] TextRequest parse_text_request(Dialect dialect, const TemplateValue& body, const RequestContext& context);

/// Returns the conversation of a body with the fields of chat completions; its parts are checked when its prompt is
/// made. Throws ApiError if there are no messages.
[[nodiscard]] RequestedConversation parse_conversation(const TemplateValue& body);

}  // namespace slipstream::tools
