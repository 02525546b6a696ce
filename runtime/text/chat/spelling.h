// Values as text: as Python's str() and repr() write them, and as JSON exactly as Python's json.dumps() writes it; and
// the reading of JSON into values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

/// Appends str(value) to `out`: a text as it is, nothing for undefined, else repr(value). Charges `runtime` for the
/// values it visits.
void write_str(Runtime& runtime, TextBuilder& out, const Value& value);
/// Returns str(value) as a value. A text is returned as it is, without a copy.
[[nodiscard]] Value to_text(Runtime& runtime, const Value& value);

struct JsonStyle {
    std::optional<MarkedText> indent;  // written once per level at the beginning of a line; nullopt: all on one line
    MarkedText item_separator;
    MarkedText key_separator;
    bool sorts_keys = false;
    bool is_ascii = false;  // true: characters beyond ASCII are written as \uXXXX
};
/// Appends `value` as JSON to `out`. Throws TemplateError if JSON cannot express it.
void write_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

/// Returns the value that the JSON `text` describes, with all texts marked with `origin`. Integers that do not fit 64
/// bits keep their digits (Kind::LongInt). Throws TemplateError, which calls the text `what`, if it is not JSON or
/// nested deeper than 100. If `runtime` is not null, the values are charged to it.
[[nodiscard]] Value parse_json(std::string_view text, std::string_view what, Runtime* runtime = nullptr,
                               Origin origin = Origin::Template);

// Texts for error messages, shortened if they are long.

/// Returns Python's repr() of a text. Its name is not `quoted`: for a std::string, a call of quoted() takes std::quoted
/// if <iomanip> is included.
[[nodiscard]] std::string repr_of(std::string_view text);
/// Returns repr() of a value, or "<type>" if that would be too long for a message.
[[nodiscard]] std::string shown(const Value& value);

}  // namespace slipstream::jinja
