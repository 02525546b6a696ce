// Python's operators on values: arithmetic and what texts and lists make of it, comparisons, membership.
#pragma once

#include <string_view>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual };

/// a op b. All of these throw TemplateError where Python raises TypeError and the like, in Python's words.
[[nodiscard]] Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);
/// +a and -a.
[[nodiscard]] Value unary_plus(const Value& a);
[[nodiscard]] Value unary_minus(const Value& a);
[[nodiscard]] bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);
/// `item` in `container`; an iterator is consumed up to the item.
[[nodiscard]] bool contains(Runtime& runtime, const Value& container, const Value& item);

/// a < b.
[[nodiscard]] bool less(Runtime& runtime, const Value& a, const Value& b);

/// Throws the error of using an undefined value, if it is one.
void refuse_undefined(const Value& value);

/// Where `part` stands in `text` at or after byte `from`, or npos; linear in both.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

}  // namespace slipstream::jinja
