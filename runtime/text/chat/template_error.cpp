#include "runtime/text/chat/template_error.h"

#include "runtime/text/printable.h"

namespace slipstream {

namespace {

constexpr std::size_t kShownBytes = 400;

std::string one_line(std::string_view name, int line, std::string_view message) {
    const std::string place = line > 0 ? fmt::format("line {}: ", line) : std::string();
    return fmt::format("{}: {}{}", name, place, printable(message, kShownBytes));
}

}  // namespace

TemplateError::TemplateError(std::string_view template_name, int line, const std::string& message)
    : Error(one_line(template_name, line, message)), message_(message), line_(line), has_place_(true) {}

}  // namespace slipstream
