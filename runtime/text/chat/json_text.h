// JSON: read into values, and written as Python's json.dumps() writes it, to the byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/chat/marked_text.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

struct JsonStyle {
    std::optional<MarkedText> indent;  // what a level is indented by; without it all stands on one line
    MarkedText item_separator;
    MarkedText key_separator;
    bool sorts_keys = false;
    bool is_ascii = false;  // what is not is written as \uXXXX
};

/// Throws TemplateError for what JSON cannot say.
void write_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

/// Integers beyond 64 bits come through as they stand there. `what` names the text in the TemplateError of text that is
/// no JSON, or nested too deeply. While rendering the values are at the expense of `runtime`. All texts are of
/// `origin`.
[[nodiscard]] Value parse_json(std::string_view text, std::string_view what, Runtime* runtime = nullptr,
                               Origin origin = Origin::Template);

}  // namespace slipstream::jinja
