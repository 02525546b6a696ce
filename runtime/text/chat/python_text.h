// Values as text, the way Python spells them.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// str(value): text as it is, of undefined nothing, else repr(value). Pays for what it walks over.
void write_str(Runtime& runtime, TextBuilder& out, const Value& value);
void write_repr(Runtime& runtime, TextBuilder& out, const Value& value);
/// str(value) as a value; text stays the same value.
[[nodiscard]] Value to_text(Runtime& runtime, const Value& value);

// For messages: cut where they are long.

/// repr() of a text.
[[nodiscard]] std::string quoted(std::string_view text);
/// repr() of a value, or its type where that is long.
[[nodiscard]] std::string shown(const Value& value);

}  // namespace slipstream::jinja
