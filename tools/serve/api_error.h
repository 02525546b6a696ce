// Errors of requests, as clients of the OpenAI API read them: {"error": {"message", "type", "param", "code"}}, or as
// those of Anthropic's do: {"type": "error", "error": {"type", "message"}}.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "tools/serve/http_message.h"

namespace slipstream::tools {

enum class ErrorShape : std::uint8_t { OpenAi, Anthropic };

/// Returns the shape that clients of the endpoint `path` read.
[[nodiscard]] ErrorShape error_shape_of(std::string_view path);

class ApiError : public Error {
public:
    /// Whether the client should send the request again: Later, after the seconds of Retry-After, or No. SDKs do so by
    /// themselves after 408, 409, 429 and 5xx; No forbids it in answers with 408 and 5xx (x-should-retry: false).
    enum class Retry : std::uint8_t { No, Later };

    ApiError(int status, std::string type, const std::string& message)
        : Error(message), type_(std::move(type)), status_(status) {}

    /// Returns the error (status 400) for a request with a mistake in the field `param`; empty: in the whole request.
    [[nodiscard]] static ApiError invalid(std::string param, const std::string& message);
    /// Returns the error (status 400) for the field `param`, which other servers support and this one does not.
    [[nodiscard]] static ApiError unsupported(std::string param, const std::string& message);
    [[nodiscard]] static ApiError too_long(std::int64_t prompt_tokens, std::int64_t context_tokens);
    /// Returns the error (status 503) for a request for which there is no room now; the client should try again later.
    [[nodiscard]] static ApiError overloaded(const std::string& message);
    [[nodiscard]] static ApiError queue_full(std::size_t n_waiting);
    [[nodiscard]] static ApiError stopping();
    /// Returns the error for a client whose request failed with the exception `failure`.
    [[nodiscard]] static ApiError of(const std::exception& failure);

    [[nodiscard]] int status() const { return status_; }
    [[nodiscard]] const std::string& param() const { return param_; }
    [[nodiscard]] const std::string& code() const { return code_; }
    [[nodiscard]] const std::string& type() const { return type_; }
    /// Of too_long(); otherwise 0.
    [[nodiscard]] std::int64_t prompt_tokens() const { return prompt_tokens_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    /// Returns the error as a JSON object of the given shape, on one line.
    [[nodiscard]] std::string body(ErrorShape shape = ErrorShape::OpenAi) const;
    [[nodiscard]] HttpAnswer answer(ErrorShape shape = ErrorShape::OpenAi) const;

private:
    [[nodiscard]] std::string anthropic_body() const;

    std::string type_;
    std::string param_;  // empty: null
    std::string code_;   // empty: null
    int status_;
    Retry retry_ = Retry::No;
    std::int64_t prompt_tokens_ = 0;  // 0: not an error of too_long()
    std::int64_t context_tokens_ = 0;
};

}  // namespace slipstream::tools
