// What every template can call: range, dict, namespace, cycler, joiner of Jinja, raise_exception and strftime_now of
// transformers.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// Missing where there is none of that name.
[[nodiscard]] Value find_global(Runtime& runtime, std::string_view name);

/// datetime.strftime() of a time without a zone, in English whatever the locale; throws TemplateError for texts that
/// are too long.
[[nodiscard]] std::string format_time(std::string_view format, const std::tm& time);

}  // namespace slipstream::jinja
