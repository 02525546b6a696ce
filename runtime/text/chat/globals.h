// The time as strftime_now() spells it.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace slipstream::jinja {

/// strftime() of the "C" locale, whatever the program's is; %f is none, %z and %Z are empty. Throws TemplateError for
/// formats and results that are too long.
[[nodiscard]] std::string format_time(std::string_view format, const std::tm& time);

}  // namespace slipstream::jinja
