// Text that is marked as safe HTML (the filters `safe` and `escape`, Python's markupsafe.Markup): joined with other
// text it escapes that text, and what is made from it is marked again. Chat templates have no use for HTML, but some
// say `safe`, and then this decides what the model reads.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// escape(value): marked text stays as it is, anything else is spelled as str() and its & > < ' " replaced.
[[nodiscard]] Value escape(Runtime& runtime, const Value& value);
[[nodiscard]] std::string escape_html(std::string_view text);

/// a + b for texts.
[[nodiscard]] Value add_texts(Runtime& runtime, const Value& a, const Value& b);

}  // namespace slipstream::jinja
