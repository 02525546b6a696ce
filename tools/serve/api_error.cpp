#include "tools/serve/api_error.h"

#include <new>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/interrupted.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/request/request_error.h"

namespace slipstream::tools {

namespace {

constexpr int kQueueRetrySeconds = 10;  // seconds of Retry-After if the queue is full; OpenAI's SDKs obey up to 120

// Returns the type of an error in Anthropic's API for this HTTP status.
std::string_view anthropic_type(int status) {
    switch (status) {
        case 401:
            return "authentication_error";
        case 403:
            return "permission_error";
        case 404:
            return "not_found_error";
        case 413:
            return "request_too_large";
        case 503:
            return "overloaded_error";
        default:
            return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

}  // namespace

ErrorShape error_shape_of(std::string_view path) {
    return path.starts_with("/v1/messages") ? ErrorShape::Anthropic : ErrorShape::OpenAi;
}

ApiError ApiError::invalid(std::string param, const std::string& message) {
    ApiError error(400, "invalid_request_error", message);
    error.param_ = std::move(param);
    return error;
}

ApiError ApiError::unsupported(std::string param, const std::string& message) {
    ApiError error = invalid(std::move(param), message);
    error.code_ = "unsupported_parameter";
    return error;
}

// Returns the error (status 400) for a prompt that is longer than the context, both in tokens. Do not change the words
// of the message: agents look for them before they shorten a conversation.
ApiError ApiError::too_long(std::int64_t prompt_tokens, std::int64_t context_tokens) {
    ApiError error(400, "exceed_context_size_error",
                   fmt::format("the request has {} tokens, which exceeds the available context size: this model's "
                               "maximum context length is {} tokens; shorten the prompt, or serve with a larger --ctx",
                               prompt_tokens, context_tokens));
    error.code_ = "context_length_exceeded";
    error.prompt_tokens_ = prompt_tokens;
    error.context_tokens_ = context_tokens;
    return error;
}

ApiError ApiError::overloaded(const std::string& message) {
    ApiError error(503, "overloaded_error", message);
    error.retry_ = Retry::Later;
    return error;
}

ApiError ApiError::queue_full(std::size_t n_waiting) {
    ApiError error = overloaded(fmt::format("{} requests wait already; try again later", n_waiting));
    error.code_ = "queue_full";
    return error;
}

ApiError ApiError::stopping() {
    ApiError error(503, "server_error", "the server stops; the answer is not complete");
    error.code_ = "server_stopping";
    return error;
}

ApiError ApiError::of(const std::exception& failure) {
    if (const auto* error = dynamic_cast<const ApiError*>(&failure)) return *error;
    if (const auto* error = dynamic_cast<const FieldError*>(&failure)) return invalid(error->field(), failure.what());
    if (dynamic_cast<const RequestError*>(&failure) != nullptr ||
        dynamic_cast<const TemplateError*>(&failure) != nullptr)
        return invalid("", failure.what());
    if (dynamic_cast<const Interrupted*>(&failure) != nullptr) return stopping();
    if (dynamic_cast<const OutOfBudget*>(&failure) != nullptr) {
        ApiError error(503, "server_error", failure.what());
        error.code_ = "out_of_memory";
        return error;
    }
    if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
        return {503, "server_error", "the system has no more memory for this request"};
    return {500, "server_error", failure.what()};
}

// Returns the error in the shape of Anthropic. Do not change the words "prompt is too long": agents look for them
// before they shorten a conversation.
std::string ApiError::anthropic_body() const {
    const std::string message =
        prompt_tokens_ > 0 ? fmt::format("prompt is too long: {} tokens > {} maximum", prompt_tokens_, context_tokens_)
                           : std::string(what());
    const nlohmann::ordered_json body{{"type", "error"},
                                      {"error", {{"type", anthropic_type(status_)}, {"message", message}}}};
    return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ApiError::body(ErrorShape shape) const {
    if (shape == ErrorShape::Anthropic) return anthropic_body();
    const auto text_or_null = [](const std::string& text) {
        return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    nlohmann::ordered_json error{
        {"message", what()}, {"type", type_}, {"param", text_or_null(param_)}, {"code", text_or_null(code_)}};
    if (prompt_tokens_ > 0) {
        error["n_prompt_tokens"] = prompt_tokens_;
        error["n_ctx"] = context_tokens_;
    }
    return nlohmann::ordered_json{{"error", std::move(error)}}.dump(-1, ' ', false,
                                                                    nlohmann::ordered_json::error_handler_t::replace);
}

HttpAnswer ApiError::answer(ErrorShape shape) const {
    HttpAnswer answer{.status = status_, .body = body(shape)};
    if (retry_ == Retry::Later)
        answer.fields.push_back({"Retry-After", fmt::format("{}", kQueueRetrySeconds)});
    else if (status_ >= 500 || status_ == 408)
        answer.fields.push_back({"x-should-retry", "false"});
    return answer;
}

}  // namespace slipstream::tools
