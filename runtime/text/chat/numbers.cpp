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

constexpr double kTwoTo63 = 9223372036854775808.0;
// repr() writes floats of these decimal exponents without one.
constexpr int kMinPlainExponent = -4;
constexpr int kMaxPlainExponent = 16;

[[noreturn]] void too_large() {
    fail("an integer leaves 64 bits, which is as large as they go here");
}

std::partial_ordering compare_int_to_float(std::int64_t a, double b) {
    if (std::isnan(b)) return std::partial_ordering::unordered;
    if (b >= kTwoTo63) return std::partial_ordering::less;
    if (b < -kTwoTo63) return std::partial_ordering::greater;
    const double whole = std::floor(b);
    const auto integer = static_cast<std::int64_t>(whole);
    if (a != integer) return a <=> integer;
    return whole < b ? std::partial_ordering::less : std::partial_ordering::equivalent;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) too_large();
    const std::int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t modulo(std::int64_t a, std::int64_t b) {
    if (b == -1) return 0;
    const std::int64_t remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
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

// CPython's float_divmod (Objects/floatobject.c): the remainder has the divisor's sign, the quotient is its floor.
struct Division {
    double quotient, remainder;
};
Division float_divmod(double a, double b) {
    double remainder = std::fmod(a, b);
    double quotient = (a - remainder) / b;
    if (remainder != 0) {
        if ((b < 0) != (remainder < 0)) {
            remainder += b;
            quotient -= 1.0;
        }
    } else {
        remainder = std::copysign(0.0, b);
    }
    if (quotient != 0) {
        const double whole = std::floor(quotient);
        quotient = quotient - whole > 0.5 ? whole + 1.0 : whole;
    } else {
        quotient = std::copysign(0.0, a / b);
    }
    return {quotient, remainder};
}

Value calculate_ints(Arithmetic operation, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    switch (operation) {
        case Arithmetic::Add:
            if (__builtin_add_overflow(a, b, &result)) too_large();
            return Value(result);
        case Arithmetic::Subtract:
            if (__builtin_sub_overflow(a, b, &result)) too_large();
            return Value(result);
        case Arithmetic::Multiply:
            if (__builtin_mul_overflow(a, b, &result)) too_large();
            return Value(result);
        case Arithmetic::Divide:
            if (b == 0) fail("division by zero");
            return Value(static_cast<double>(a) / static_cast<double>(b));
        case Arithmetic::FloorDivide:
            if (b == 0) fail("integer division or modulo by zero");
            return Value(floor_divide(a, b));
        case Arithmetic::Modulo:
            if (b == 0) fail("integer modulo by zero");
            return Value(modulo(a, b));
        case Arithmetic::Power:
            break;
    }
    if (b >= 0) return Value(power(a, b));
    if (a == 0) fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

Value float_power(double a, double b) {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) fail("a power with a complex result");
    if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a power beyond the range of floats");
    return Value(result);
}

Value calculate_floats(Arithmetic operation, double a, double b) {
    const bool divides =
        operation == Arithmetic::Divide || operation == Arithmetic::FloorDivide || operation == Arithmetic::Modulo;
    if (divides && b == 0) fail("float division by zero");
    switch (operation) {
        case Arithmetic::Add:
            return Value(a + b);
        case Arithmetic::Subtract:
            return Value(a - b);
        case Arithmetic::Multiply:
            return Value(a * b);
        case Arithmetic::Divide:
            return Value(a / b);
        case Arithmetic::FloorDivide:
            return Value(float_divmod(a, b).quotient);
        case Arithmetic::Modulo:
            return Value(float_divmod(a, b).remainder);
        case Arithmetic::Power:
            break;
    }
    return float_power(a, b);
}

// White space off, a sign taken (true for minus), underscores between digits out; nothing where one stands elsewhere.
std::optional<std::string> plain_digits(std::string_view text, bool& is_negative) {
    const TextSpan span = stripped(text, Ends::Both);
    text = text.substr(0, span.end).substr(span.begin);
    is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    const auto is_ascii_digit = [](char c) { return c >= '0' && c <= '9'; };
    std::string digits;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            digits += text[i];
        } else if (i == 0 || i + 1 == text.size() || !is_ascii_digit(text[i - 1]) || !is_ascii_digit(text[i + 1])) {
            return std::nullopt;
        }
    }
    return digits;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
    const bool a_float = a.is(Kind::Float);
    const bool b_float = b.is(Kind::Float);
    if (a_float && b_float) return a.real() <=> b.real();
    if (!a_float && !b_float) return a.integer() <=> b.integer();
    if (b_float) return compare_int_to_float(a.integer(), b.real());
    return 0 <=> compare_int_to_float(b.integer(), a.real());
}

std::optional<std::int64_t> exact_integer(double number) {
    if (!(number >= -kTwoTo63 && number < kTwoTo63) || std::floor(number) != number) return std::nullopt;
    return static_cast<std::int64_t>(number);
}

Value calculate(Arithmetic operation, const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) return calculate_ints(operation, a.integer(), b.integer());
    return calculate_floats(operation, a.real(), b.real());
}

std::optional<std::int64_t> parse_int(std::string_view text) {
    bool is_negative = false;
    const auto digits = plain_digits(text, is_negative);
    if (!digits || digits->empty() || digits->find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    const std::string signed_digits = (is_negative ? "-" : "") + *digits;
    std::int64_t number = 0;
    const auto [end, error] =
        std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), number);
    if (error != std::errc()) too_large();
    return number;
}

std::optional<double> parse_float(std::string_view text) {
    bool is_negative = false;
    const auto digits = plain_digits(text, is_negative);
    if (!digits || digits->empty()) return std::nullopt;
    const bool is_word = digits->find_first_of("0123456789") == std::string::npos;  // inf, nan
    if (!is_word && digits->find_first_not_of("0123456789.eE+-") != std::string::npos) return std::nullopt;
    if (digits->front() == '+' || digits->front() == '-') return std::nullopt;
    double number = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, number);
    if (stop != end || (is_word && error != std::errc())) return std::nullopt;
    // Out of range: from_chars leaves the number alone; strtod says whether it is zero or infinity.
    if (error == std::errc::result_out_of_range) number = std::strtod(digits->c_str(), nullptr);
    return is_negative ? -number : number;
}

std::string float_text(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
    // "-d.ddde+XX": take it apart and put it together again as Python does.
    std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
    const bool negative = text.front() == '-';
    if (negative) text.remove_prefix(1);
    const std::size_t e = text.find('e');
    int exponent = 0;
    const bool plus = text[e + 1] == '+';
    std::from_chars(text.data() + e + 1 + (plus ? 1 : 0), text.data() + text.size(), exponent);
    std::string digits(1, text[0]);
    if (e > 2) digits.append(text.substr(2, e - 2));
    std::string result(negative ? "-" : "");
    const auto n_digits = static_cast<int>(digits.size());
    const auto zeros = [](int n) { return std::string(static_cast<std::size_t>(n), '0'); };
    const std::string_view all = digits;
    if (exponent < kMinPlainExponent || exponent >= kMaxPlainExponent) {
        result.append(all.substr(0, 1));
        if (n_digits > 1) result.append(1, '.').append(all.substr(1));
        return result.append(fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent)));
    }
    if (exponent < 0) return result.append("0.").append(zeros(-exponent - 1)).append(all);
    const int whole = exponent + 1;
    if (n_digits <= whole) return result.append(all).append(zeros(whole - n_digits)).append(".0");
    const auto point = static_cast<std::size_t>(whole);
    return result.append(all.substr(0, point)).append(1, '.').append(all.substr(point));
}

}  // namespace slipstream::jinja
