// The filters of Jinja: {{ value | name(arguments) }}. What Jinja has and this does not serve (random, pprint, urlize,
// wordwrap, striptags) is known by name and says so when it is applied.
#pragma once

#include <string_view>

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// Throws TemplateError where Python would raise.
using FilterBody = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

struct Filter {
    std::string_view name;
    FilterBody body;
};

/// The filter of that name, or null.
[[nodiscard]] const Filter* find_filter(std::string_view name);

}  // namespace slipstream::jinja
