// The error of a chat template: its source is not Jinja, it does something impossible, it exceeds a limit, or it
// refuses the conversation (raise_exception). Only exceptions of this type leave the parser and the evaluator. Inside,
// fail() throws an error without a place; ChatTemplate adds the name and the line of the template.
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
    /// An error without a template name and a line.
    explicit TemplateError(const std::string& message) : Error(message), message_(message) {}
    TemplateError(std::string_view template_name, int line, const std::string& message)
        : Error(fmt::format("{}: {}{}", template_name, line > 0 ? fmt::format("line {}: ", line) : std::string(),
                            printable(message, kShownBytes))),
          message_(message),
          line_(line) {}

    /// Returns the message as it was raised; it may have several lines. what() is one printable line that begins with
    /// the name and the line of the template.
    [[nodiscard]] const std::string& message() const { return message_; }
    /// Returns the line of the template, from 1, or 0 if no line is known.
    [[nodiscard]] int line() const { return line_; }

private:
    // Limits the message in what(), in bytes, so that an error stays one readable line; longer messages are cut.
    static constexpr std::size_t kShownBytes = 400;

    std::string message_;
    int line_ = 0;
};

namespace jinja {

/// Throws a TemplateError without a template name and a line.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace jinja

}  // namespace slipstream
