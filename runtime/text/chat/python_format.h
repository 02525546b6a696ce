// Python's two ways of putting values into text: "%s is %d" % (name, n) and "{} is {n:>4}".format(name, n=4).
#pragma once

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;
struct Arguments;

/// text % values: a tuple of values, a mapping for %(name)s, or one value.
[[nodiscard]] Value format_percent(Runtime& runtime, const Value& text, const Value& values);

/// text.format(...). Attributes and elements in fields ("{0.role}") go through the sandbox as everywhere.
[[nodiscard]] Value format_braces(Runtime& runtime, const Value& text, const Arguments& arguments);

}  // namespace slipstream::jinja
