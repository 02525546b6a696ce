#include "runtime/text/chat/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::int64_t kMaxPrecision = 1000;
constexpr int kDefaultPrecision = 6;

bool is_one_of(char c, std::string_view set) {
    return c != 0 && set.find(c) != std::string_view::npos;
}

// Takes digits off the front; -1 where there are none.
std::int64_t take_number(std::string_view& text) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (stop == text.data() || text.front() == '-') return -1;
    if (error != std::errc()) fail("too many decimal digits in a format");
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return number;
}

char take_one_of(std::string_view& text, std::string_view set) {
    if (text.empty() || !is_one_of(text.front(), set)) return 0;
    const char c = text.front();
    text.remove_prefix(1);
    return c;
}

std::string grouped(std::string_view digits, char separator, std::size_t group) {
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % group == 0) out.push_back(separator);
        out.push_back(digits[i]);
    }
    return out;
}

// Groups the whole part of "1234.5e+10"; where zeros fill the field, they are grouped as well.
std::string grouped_number(const std::string& digits, const FormatSpec& spec, std::size_t group, std::size_t n_sign) {
    if (spec.grouping == 0) return digits;
    if (spec.width > kMaxPrecision) fail("a grouped number of more than {} digits", kMaxPrecision);
    const std::string_view whole_digits = group == 3 ? "0123456789" : "0123456789abcdefABCDEF";
    const std::size_t end = std::min(digits.find_first_not_of(whole_digits), digits.size());
    const bool zeros = spec.align == '=' && spec.fill == "0";
    std::string whole = digits.substr(0, end);
    std::string result = grouped(whole, spec.grouping, group) + digits.substr(end);
    while (zeros && static_cast<std::int64_t>(n_sign + result.size()) < spec.width) {
        whole.insert(0, 1, '0');
        result = grouped(whole, spec.grouping, group) + digits.substr(end);
    }
    return result;
}

std::string_view sign_of(bool negative, char sign) {
    if (negative) return "-";
    return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

// No type said, but a precision: as g, with ".0" where nothing else shows that it is a float (CPython, 'r' style).
std::string general_digits(double number, std::int64_t precision) {
    const std::int64_t significant = std::max<std::int64_t>(precision, 1);
    const std::string scientific = fmt::format("{:.{}e}", number, static_cast<int>(significant - 1));
    const std::size_t e = scientific.find('e');
    const int exponent = std::atoi(scientific.c_str() + e + 1);
    std::string mantissa = scientific.substr(0, e);
    // One digit is kept for the ".0".
    if (exponent < -4 || exponent > significant - 2) {
        if (mantissa.find('.') != std::string::npos) {
            mantissa.erase(mantissa.find_last_not_of('0') + 1);
            if (mantissa.back() == '.') mantissa.pop_back();
        }
        return mantissa + scientific.substr(e);
    }
    std::string plain =
        fmt::format("{:.{}f}", number, static_cast<int>(std::max<std::int64_t>(significant - 1 - exponent, 0)));
    if (plain.find('.') != std::string::npos) {
        plain.erase(plain.find_last_not_of('0') + 1);
        if (plain.back() == '.') plain.push_back('0');
        return plain;
    }
    return plain + ".0";
}

void format_int(TextBuilder& out, std::int64_t number, const FormatSpec& spec) {
    if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
    const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
    if (type == 'c') {
        if (number < 0 || number > 0x10ffff || (number >= 0xd800 && number < 0xe000))
            fail("%c arg not in range(0x110000)");
        std::string text;
        append_utf8(text, static_cast<char32_t>(number));
        pad_text(out, text, spec);
        return;
    }
    if (spec.grouping == ',' && type != 'd') fail("Cannot specify ',' with '{}'.", type);
    std::string prefix(sign_of(number < 0, spec.sign));
    if (spec.alternate && type != 'd') prefix += std::string("0") + type;
    const std::string digits = int_digits(number, type, false);
    pad_number(out, prefix, grouped_number(digits, spec, type == 'd' ? 3 : 4, prefix.size()), spec);
}

void format_float(TextBuilder& out, double number, const FormatSpec& spec) {
    std::string digits;
    const double magnitude = std::fabs(number);
    const bool percent = spec.type == '%';
    if (spec.type == 0) {
        digits = spec.precision < 0 || !std::isfinite(number) ? float_text(magnitude)
                                                              : general_digits(magnitude, spec.precision);
    } else {
        const char type = percent ? 'f' : spec.type == 'n' ? 'g' : spec.type;
        const std::int64_t precision = spec.precision < 0 ? kDefaultPrecision : spec.precision;
        digits = float_digits(percent ? 100 * magnitude : magnitude, type, precision, spec.alternate);
        if (percent) digits.push_back('%');
    }
    const std::string_view sign = sign_of(std::signbit(number) && !std::isnan(number), spec.sign);
    if (std::isfinite(number)) digits = grouped_number(digits, spec, 3, sign.size());
    pad_number(out, sign, digits, spec);
}

void format_text(TextBuilder& out, std::string_view text, const FormatSpec& spec) {
    if (spec.type != 0 && spec.type != 's') fail("Unknown format code '{}' for object of type 'str'", spec.type);
    if (spec.sign != 0) fail("Sign not allowed in string format specifier");
    if (spec.alternate) fail("Alternate form (#) not allowed in string format specifier");
    if (spec.grouping != 0) fail("Cannot specify '{}' with 's'.", spec.grouping);
    if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
    pad_text(out, spec.precision < 0 ? text : text.substr(0, byte_offset(text, spec.precision)), spec);
}

}  // namespace

FormatSpec FormatSpec::parse(std::string_view text) {
    FormatSpec spec;
    const std::string_view whole = text;
    if (!text.empty()) {
        const std::string_view first = first_char(text).bytes;
        if (text.size() > first.size() && is_one_of(text[first.size()], "<>=^")) {
            spec.fill = first;
            spec.align = text[first.size()];
            text.remove_prefix(first.size() + 1);
        } else {
            spec.align = take_one_of(text, "<>=^");
        }
    }
    spec.sign = take_one_of(text, "+- ");
    spec.alternate = take_one_of(text, "#") != 0;
    const bool zero = take_one_of(text, "0") != 0;
    if (zero && spec.align == 0) {
        spec.fill = "0";
        spec.align = '=';
    }
    spec.width = std::max<std::int64_t>(take_number(text), 0);
    spec.grouping = take_one_of(text, ",_");
    if (take_one_of(text, ".") != 0) {
        spec.precision = take_number(text);
        if (spec.precision < 0) fail("Format specifier missing precision");
    }
    spec.type = take_one_of(text, "bcdeEfFgGnosxX%");
    if (!text.empty()) fail("Invalid format specifier {}", quoted(whole));
    return spec;
}

void format_value(TextBuilder& out, const Value& value, std::string_view text) {
    if (text.empty()) {
        write_str(out, value);
        return;
    }
    FormatSpec spec = FormatSpec::parse(text);
    if (value.is_text()) {
        // A zero before the width fills texts on the right.
        if (spec.align == '=' && spec.fill == "0") spec.align = '<';
        format_text(out, value.view(), spec);
    } else if (value.is_integral() && !is_one_of(spec.type, "eEfFgG%")) {
        if (spec.type == 's') fail("Unknown format code 's' for object of type 'int'");
        format_int(out, value.integer(), spec);
    } else if (value.is_number()) {
        if (is_one_of(spec.type, "bcdosxX")) fail("Unknown format code '{}' for object of type 'float'", spec.type);
        format_float(out, value.real(), spec);
    } else {
        fail("unsupported format string passed to {}.__format__", type_name(value));
    }
}

std::string float_digits(double number, char type, std::int64_t precision, bool alternate) {
    if (precision > kMaxPrecision) fail("a precision of more than {} digits", kMaxPrecision);
    const auto digits = static_cast<int>(precision);
    const bool upper = type >= 'A' && type <= 'Z';
    if (std::isnan(number)) return upper ? "NAN" : "nan";
    if (std::isinf(number)) return upper ? "INF" : "inf";
    switch (type) {
        case 'e':
            return alternate ? fmt::format("{:#.{}e}", number, digits) : fmt::format("{:.{}e}", number, digits);
        case 'E':
            return alternate ? fmt::format("{:#.{}E}", number, digits) : fmt::format("{:.{}E}", number, digits);
        case 'f':
        case 'F':
            return alternate ? fmt::format("{:#.{}f}", number, digits) : fmt::format("{:.{}f}", number, digits);
        case 'G':
            return alternate ? fmt::format("{:#.{}G}", number, digits) : fmt::format("{:.{}G}", number, digits);
        default:
            return alternate ? fmt::format("{:#.{}g}", number, digits) : fmt::format("{:.{}g}", number, digits);
    }
}

std::string int_digits(std::int64_t number, char type, bool alternate) {
    // Unsigned: the smallest integer has no positive counterpart.
    const std::uint64_t magnitude =
        number < 0 ? ~static_cast<std::uint64_t>(number) + 1 : static_cast<std::uint64_t>(number);
    const std::string prefix = alternate && type != 'd' ? std::string("0") + type : std::string();
    switch (type) {
        case 'b':
            return prefix + fmt::format("{:b}", magnitude);
        case 'o':
            return prefix + fmt::format("{:o}", magnitude);
        case 'x':
            return prefix + fmt::format("{:x}", magnitude);
        case 'X':
            return prefix + fmt::format("{:X}", magnitude);
        default:
            return prefix + fmt::format("{}", magnitude);
    }
}

void pad_number(TextBuilder& out, std::string_view sign_and_prefix, std::string_view digits, const FormatSpec& spec) {
    if (spec.align == '=') {
        out.append(sign_and_prefix);
        out.repeat(spec.width - count_chars(sign_and_prefix) - count_chars(digits), spec.fill);
        out.append(digits);
        return;
    }
    FormatSpec placed = spec;
    if (placed.align == 0) placed.align = '>';
    pad_text(out, std::string(sign_and_prefix) + std::string(digits), placed);
}

void pad_text(TextBuilder& out, std::string_view text, const FormatSpec& spec) {
    const std::int64_t missing = std::max<std::int64_t>(spec.width - count_chars(text), 0);
    const std::int64_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
    out.repeat(left, spec.fill);
    out.append(text);
    out.repeat(missing - left, spec.fill);
}

}  // namespace slipstream::jinja
