#include "runtime/text/chat/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

[[noreturn]] void too_large() {
    fail("an integer leaves 64 bits, which is as large as they go here");
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
    std::int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return result;
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
            const bool divides = operation == Arithmetic::FloorDivide;
            if (b == 0) fail("{}", divides ? "integer division or modulo by zero" : "integer modulo by zero");
            overflows = divides && b == -1 && a == INT64_MIN;
            const __int128 rest = static_cast<__int128>(a) % b;
            const bool is_below = rest != 0 && (rest < 0) != (b < 0);  // Python rounds down
            result = static_cast<std::int64_t>(divides ? static_cast<__int128>(a) / b - (is_below ? 1 : 0)
                                                       : rest + (is_below ? b : 0));
            break;
        }
        case Arithmetic::Power:
            if (b >= 0) return Value(power(a, b));
            if (a == 0) fail("0.0 cannot be raised to a negative power");
            return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    if (overflows) too_large();
    return Value(result);
}

// CPython's float_divmod (Objects/floatobject.c): the remainder has the divisor's sign, the quotient is its floor.
Value divide_floats(double a, double b, bool wants_quotient) {
    double remainder = std::fmod(a, b);
    double quotient = (a - remainder) / b;
    if (remainder == 0) {
        remainder = std::copysign(0.0, b);
    } else if ((b < 0) != (remainder < 0)) {
        remainder += b;
        quotient -= 1.0;
    }
    if (!wants_quotient) return Value(remainder);
    if (quotient == 0) return Value(std::copysign(0.0, a / b));
    const double whole = std::floor(quotient);
    return Value(quotient - whole > 0.5 ? whole + 1.0 : whole);
}

Value calculate_floats(Arithmetic operation, double a, double b) {
    switch (operation) {
        case Arithmetic::Add:
            return Value(a + b);
        case Arithmetic::Subtract:
            return Value(a - b);
        case Arithmetic::Multiply:
            return Value(a * b);
        case Arithmetic::Power:
            if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
            if (a < 0 && std::floor(b) != b) fail("a power with a complex result");
            return Value(std::pow(a, b));
        default:
            if (b == 0) fail("float division by zero");
            if (operation == Arithmetic::Divide) return Value(a / b);
            return divide_floats(a, b, operation == Arithmetic::FloorDivide);
    }
}

// White space off, underscores between digits out; nothing where one stands elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
    const TextSpan span = stripped(text, Ends::Both);
    text = text.substr(0, span.end).substr(span.begin);
    const auto is_digit_at = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    std::string digits;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            digits += text[i];
        } else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) {
            return std::nullopt;
        }
    }
    if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
    return digits;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
    // 64 bits of mantissa hold both an int and a double.
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
    const auto digits = plain_digits(text);
    if (!digits) return std::nullopt;
    std::int64_t number = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, number);
    if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) too_large();
    return number;
}

std::optional<double> parse_float(std::string_view text) {
    const auto digits = plain_digits(text);
    if (!digits || digits->find_first_of("()") != std::string::npos) return std::nullopt;
    double number = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, number);
    if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
    // Out of range: from_chars leaves the number alone; strtod says whether it is zero or infinity.
    if (error == std::errc::result_out_of_range) number = std::strtod(digits->c_str(), nullptr);
    return number;
}

std::string float_text(double number) {
    std::string text = fmt::format("{}", number);
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace slipstream::jinja
