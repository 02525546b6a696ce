// Values as text: the way Python spells them, and as JSON the way its json.dumps() writes it, to the byte; and JSON as
// values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

/// str(value): text as it is, of undefined nothing, else repr(value). Pays for what it walks over.
void write_str(Runtime& runtime, TextBuilder& out, const Value& value);
/// str(value) as a value; text stays the same value.
[[nodiscard]] Value to_text(Runtime& runtime, const Value& value);

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

// For messages: cut where they are long.

/// repr() of a text.
[[nodiscard]] std::string quoted(std::string_view text);
/// repr() of a value, or its type where that is long.
[[nodiscard]] std::string shown(const Value& value);

}  // namespace slipstream::jinja
