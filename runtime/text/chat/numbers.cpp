#include "runtime/text/chat/operators.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

[[noreturn]] void too_large() {
    fail("an integer leaves 64 bits, which is as large as they go here");
}

Value calculate_ints(Arithmetic operation, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflows = false;
    switch (operation) {
        case Arithmetic::Add:
            overflows = __builtin_add_overflow(a, b, &result);
            break;
        case Arithmetic::Subtract:
            overflows = __builtin_sub_overflow(a, b, &result);
            break;
        case Arithmetic::Multiply:
            overflows = __builtin_mul_overflow(a, b, &result);
            break;
        case Arithmetic::Divide:
            if (b == 0) fail("division by zero");
            return Value(static_cast<double>(a) / static_cast<double>(b));
        case Arithmetic::FloorDivide:
        case Arithmetic::Modulo: {
            if (b == 0) fail("integer division or modulo by zero");
            if (b == -1) return operation == Arithmetic::Modulo ? Value(0) : calculate_ints(Arithmetic::Subtract, 0, a);
            const bool is_below = a % b != 0 && (a < 0) != (b < 0);  // Python rounds towards minus infinity
            result = operation == Arithmetic::Modulo ? a % b + (is_below ? b : 0) : a / b - (is_below ? 1 : 0);
            break;
        }
    }
    if (overflows) too_large();
    return Value(result);
}

Value calculate_floats(Arithmetic operation, double a, double b) {
    switch (operation) {
        case Arithmetic::Add:
            return Value(a + b);
        case Arithmetic::Subtract:
            return Value(a - b);
        case Arithmetic::Multiply:
            return Value(a * b);
        default:
            break;
    }
    if (b == 0) fail("float division by zero");
    if (operation == Arithmetic::Divide) return Value(a / b);
    // As in CPython, the remainder has the sign of the divisor, and the quotient is a whole number.
    double remainder = std::fmod(a, b);
    if (remainder == 0)
        remainder = std::copysign(0.0, b);
    else if ((remainder < 0) != (b < 0))
        remainder += b;
    return Value(operation == Arithmetic::Modulo ? remainder : std::round((a - remainder) / b));
}

template <typename T>
std::errc parse(std::string_view text, T& number) {
    const TextSpan span = stripped(text, Ends::Both);
    text = text.substr(0, span.end).substr(span.begin);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return stop == text.data() + text.size() ? error : std::errc::invalid_argument;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
    // A long double with 64 bits of mantissa holds every int64_t and every double exactly.
    static_assert(std::numeric_limits<long double>::digits >= 64);
    const auto exact = [](const Value& value) {
        return value.is(Kind::Float) ? static_cast<long double>(value.real())
                                     : static_cast<long double>(value.integer());
    };
    return exact(a) <=> exact(b);
}

std::optional<std::int64_t> exact_integer(double number) {
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (!(number >= -kTwoTo63 && number < kTwoTo63) || std::floor(number) != number) return std::nullopt;
    return static_cast<std::int64_t>(number);
}

Value calculate(Arithmetic operation, const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) return calculate_ints(operation, a.integer(), b.integer());
    return calculate_floats(operation, a.real(), b.real());
}

std::optional<std::int64_t> parse_int(std::string_view text) {
    std::int64_t number = 0;
    const std::errc error = parse(text, number);
    if (error == std::errc::result_out_of_range) too_large();
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
    double number = 0;
    const std::errc error = parse(text, number);
    // Python reads numbers that are too large as infinite, and those that are too small as 0.
    if (error == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string float_text(double number) {
    std::string text = fmt::format("{}", number);
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace slipstream::jinja
