#include "runtime/text/chat/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "kernels/base/check.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;
constexpr int kMaxExponentDigits = 400;  // beyond any double's

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

// The digits of a number, underscores between digits taken out, other scripts' digits made ASCII. Nothing where an
// underscore stands elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
    std::string out;
    bool after_digit = false;
    while (!text.empty()) {
        const Char c = take_char(text);
        if (c.code == '_') {
            const bool before_digit =
                !text.empty() && (is_decimal(first_char(text).code) || is_alpha(first_char(text).code));
            if (!after_digit || !before_digit) return std::nullopt;
            after_digit = false;
            continue;
        }
        const int digit = decimal_value(c.code);
        if (digit >= 0) {
            out.push_back(static_cast<char>('0' + digit));
        } else {
            out.append(c.bytes);
        }
        after_digit = digit >= 0 || is_alpha(c.code);
    }
    return out;
}

// Takes a sign off; true for minus.
bool take_sign(std::string_view& text) {
    if (text.empty() || (text[0] != '-' && text[0] != '+')) return false;
    const bool minus = text[0] == '-';
    text.remove_prefix(1);
    return minus;
}

int base_of_prefix(std::string_view text) {
    if (text.size() < 2 || text[0] != '0') return 0;
    switch (text[1] | 0x20) {
        case 'x':
            return 16;
        case 'o':
            return 8;
        case 'b':
            return 2;
        default:
            return 0;
    }
}

bool same_word(std::string_view text, std::string_view word) {
    if (text.size() != word.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i)
        if ((text[i] | 0x20) != word[i]) return false;
    return true;
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
    DCHECK(a.is_number() && b.is_number());
    if (a.is_integral() && b.is_integral()) return calculate_ints(operation, a.integer(), b.integer());
    return calculate_floats(operation, a.real(), b.real());
}

Value negate(const Value& a) {
    if (a.is(Kind::Float)) return Value(-a.real());
    return calculate_ints(Arithmetic::Subtract, 0, a.integer());
}

std::optional<std::int64_t> parse_int(std::string_view text, int base) {
    if (base != 0 && (base < 2 || base > 36)) fail("int() base must be >= 2 and <= 36, or 0");
    text = strip(text);
    const bool minus = take_sign(text);
    const int prefix = base_of_prefix(text);
    if (prefix != 0 && (base == 0 || base == prefix)) {
        text.remove_prefix(2);
        if (text.starts_with('_')) text.remove_prefix(1);
        base = prefix;
    }
    const auto digits = plain_digits(text);
    if (!digits || digits->empty()) return std::nullopt;
    if (base == 0) {
        if (digits->front() == '0' && digits->find_first_not_of('0') != std::string::npos) return std::nullopt;
        base = 10;
    }
    // Negative all along: the smallest integer has no positive counterpart.
    std::int64_t number = 0;
    bool overflow = false;
    for (const char c : *digits) {
        const int letter = c | 0x20;
        const int digit = c >= '0' && c <= '9' ? c - '0' : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : base;
        if (digit >= base) return std::nullopt;
        overflow = overflow || __builtin_mul_overflow(number, std::int64_t{base}, &number) ||
                   __builtin_sub_overflow(number, std::int64_t{digit}, &number);
    }
    if (!minus) overflow = overflow || __builtin_sub_overflow(std::int64_t{0}, number, &number);
    if (overflow) too_large();
    return number;
}

std::optional<double> parse_float(std::string_view text) {
    text = strip(text);
    const bool minus = take_sign(text);
    const double sign = minus ? -1.0 : 1.0;
    if (same_word(text, "inf") || same_word(text, "infinity")) return sign * std::numeric_limits<double>::infinity();
    if (same_word(text, "nan")) return std::numeric_limits<double>::quiet_NaN();
    const auto digits = plain_digits(text);
    if (!digits || digits->empty()) return std::nullopt;
    if (digits->find_first_not_of("0123456789.eE+-") != std::string::npos) return std::nullopt;
    if (digits->front() == '+' || digits->front() == '-') return std::nullopt;
    double number = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, number);
    if (stop != end) return std::nullopt;
    // Out of range: from_chars leaves the number alone; strtod says whether it is zero or infinity.
    if (error == std::errc::result_out_of_range) number = std::strtod(digits->c_str(), nullptr);
    return sign * number;
}

std::optional<std::int64_t> truncate(double number) {
    if (std::isnan(number)) return std::nullopt;
    if (std::isinf(number)) fail("cannot convert float infinity to integer");
    const auto whole = exact_integer(std::trunc(number));
    if (!whole) too_large();
    return *whole;
}

double round_float(double number, std::int64_t digits) {
    if (!std::isfinite(number) || number == 0 || digits > kMaxExponentDigits) return number;
    if (digits < -kMaxExponentDigits) return std::copysign(0.0, number);
    if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(digits)).c_str(), nullptr);
    // Significant digits left of the place that is rounded to; "%.e" rounds exactly, halves to even.
    const std::string scientific = fmt::format("{:.17e}", number);
    const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
    const std::int64_t significant = exponent + 1 + digits;
    if (significant >= 1)
        return std::strtod(fmt::format("{:.{}e}", number, static_cast<int>(significant - 1)).c_str(), nullptr);
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::copysign(significant == 0 && std::fabs(number) > unit / 2 ? unit : 0.0, number);
}

std::int64_t round_int(std::int64_t number, std::int64_t digits) {
    if (digits >= 0 || number == 0) return number;
    if (digits < -19) return 0;
    // 128 bits: ten to the nineteenth does not fit 64.
    __int128 unit = 1;
    for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
    __int128 rest = number % unit;
    if (rest < 0) rest += unit;
    const __int128 below = number - rest;
    const bool up = 2 * rest > unit || (2 * rest == unit && below / unit % 2 != 0);
    const __int128 result = up ? below + unit : below;
    if (result > std::numeric_limits<std::int64_t>::max() || result < std::numeric_limits<std::int64_t>::min())
        too_large();
    return static_cast<std::int64_t>(result);
}

}  // namespace slipstream::jinja
