// Python's numbers: ints of 64 bits (what does not fit is an error, never a wrong number), floats, bools as ints.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// Exact, also between ints and floats; unordered where a NaN is in it.
[[nodiscard]] std::partial_ordering compare_numbers(const Value& a, const Value& b);

/// The integer that `number` is, if it is one of 64 bits.
[[nodiscard]] std::optional<std::int64_t> exact_integer(double number);

enum class Arithmetic : std::uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };

/// `a` op `b` for numbers (ints, floats, bools); throws TemplateError as Python raises (division by zero), and where an
/// int leaves 64 bits.
[[nodiscard]] Value calculate(Arithmetic operation, const Value& a, const Value& b);
/// -a.
[[nodiscard]] Value negate(const Value& a);

/// int(text, base): white space around it, a sign, underscores between digits, digits of any script, prefixes for the
/// base (and for base 0). Nothing where Python raises ValueError; throws TemplateError where it leaves 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_int(std::string_view text, int base);
/// float(text).
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

/// int(number); throws TemplateError for infinities and what leaves 64 bits; nothing for NaN.
[[nodiscard]] std::optional<std::int64_t> truncate(double number);
/// round(number, digits): halves to even, decided on the exact binary value.
[[nodiscard]] double round_float(double number, std::int64_t digits);
[[nodiscard]] std::int64_t round_int(std::int64_t number, std::int64_t digits);

}  // namespace slipstream::jinja
