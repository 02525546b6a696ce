// A request's fields cannot be used: the error names the field, as the protocol of OpenAI does in `param`.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

class FieldError : public RequestError {
public:
    FieldError(std::string field, const std::string& what)
        : RequestError(fmt::format("{}: {}", field, what)), field_(std::move(field)) {}

    /// Returns the path of the field: "messages[2].content", for example.
    [[nodiscard]] const std::string& field() const { return field_; }

private:
    std::string field_;
};

}  // namespace slipstream
