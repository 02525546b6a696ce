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
    /// Whether the client should send the request again. Its SDK would by itself after 408, 409, 429 and 5xx.
    enum class Retry : std::uint8_t { No, Later };

    ApiError(int status, std::string type, const std::string& message)
        : Error(message), type_(std::move(type)), status_(status) {}

    /// A request with a mistake in `param`, or (empty) as a whole.
    [[nodiscard]] static ApiError invalid(std::string param, const std::string& message);
    /// Something that exists elsewhere and not here, named by `param`.
    [[nodiscard]] static ApiError unsupported(std::string param, const std::string& message);
    [[nodiscard]] static ApiError too_long(std::int64_t prompt_tokens, std::int64_t context_tokens);
    /// There is no room now, but later there may be.
    [[nodiscard]] static ApiError overloaded(const std::string& message);
    [[nodiscard]] static ApiError queue_full(std::size_t n_waiting);
    [[nodiscard]] static ApiError stopping();
    /// The error for a client if answering its request failed with `failure`.
    [[nodiscard]] static ApiError of(const std::exception& failure);

    [[nodiscard]] int status() const { return status_; }
    [[nodiscard]] const std::string& param() const { return param_; }
    [[nodiscard]] const std::string& code() const { return code_; }
    [[nodiscard]] const std::string& type() const { return type_; }
    /// The JSON object with the key "error", on one line.
    [[nodiscard]] std::string body(ErrorShape shape = ErrorShape::OpenAi) const;
    [[nodiscard]] HttpAnswer answer(ErrorShape shape = ErrorShape::OpenAi) const;

private:
    [[nodiscard]] std::string anthropic_body() const;

    std::string type_;
    std::string param_;  // empty: null
    std::string code_;   // empty: null
    int status_;
    Retry retry_ = Retry::No;
    std::int64_t prompt_tokens_ = 0;  // > 0: of too_long()
    std::int64_t context_tokens_ = 0;
};

}  // namespace slipstream::tools
