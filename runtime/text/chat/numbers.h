// Python's numbers: ints of 64 bits (what does not fit is an error, never a wrong number), floats, bools as ints.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
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

/// int(text) and float(text): white space around it, a sign, underscores between digits. Nothing where Python raises
/// ValueError; throws TemplateError where an int leaves 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_int(std::string_view text);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

/// As repr() spells it: the shortest digits that give the number again.
[[nodiscard]] std::string float_text(double number);

}  // namespace slipstream::jinja
