// What goes wrong in a chat template: its source is not Jinja, it asks for something impossible, it runs away, or it
// refuses the conversation itself (raise_exception). The one type of exception that leaves this folder's parser and
// evaluator. Inside, fail() throws one without a place; the parser and the rendering add template and line on the way
// out.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

class TemplateError : public Error {
public:
    /// Without a place.
    explicit TemplateError(const std::string& message) : Error(message), message_(message) {}
    TemplateError(std::string_view template_name, int line, const std::string& message)
        : Error(fmt::format("{}: {}{}", template_name, line > 0 ? fmt::format("line {}: ", line) : std::string(),
                            printable(message, kShownBytes))),
          message_(message),
          line_(line) {}

    /// The error itself, as it was raised (may hold several lines); what() is one printable line with the place.
    [[nodiscard]] const std::string& message() const { return message_; }
    /// In the template, from 1; 0 where no line is to blame.
    [[nodiscard]] int line() const { return line_; }

private:
    static constexpr std::size_t kShownBytes = 400;

    std::string message_;
    int line_ = 0;
};

namespace jinja {

/// Throws a TemplateError without a place.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace jinja

}  // namespace slipstream
