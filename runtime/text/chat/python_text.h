// How Python spells values: str() and repr(), byte for byte, floats with the fewest digits that read back.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/chat/text_builder.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// str(value); texts as they are, undefined values as nothing.
void write_str(TextBuilder& out, const Value& value);
/// repr(value). `level` counts what it stands in: objects may hold themselves, and that ends with a TemplateError.
void write_repr(TextBuilder& out, const Value& value, int level = 0);

/// str(value) as a value, paid for; a text stays the same one.
[[nodiscard]] Value to_text(Runtime& runtime, const Value& value);

/// repr() of a float: "1.0", "1e+16", "inf".
[[nodiscard]] std::string float_text(double number);

/// repr() of a text or value cut to what a message can hold.
[[nodiscard]] std::string quoted(std::string_view text);
[[nodiscard]] std::string shown(const Value& value);

}  // namespace slipstream::jinja
