// The tests of Jinja: {% if value is name(arguments) %}.
#pragma once

#include <string_view>

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// Throws TemplateError where Python would raise.
using TestBody = bool (*)(Runtime& runtime, const Value& value, const Arguments& arguments);

struct ValueTest {
    std::string_view name;
    TestBody body;
};

/// The test of that name, or null.
[[nodiscard]] const ValueTest* find_test(std::string_view name);

}  // namespace slipstream::jinja
