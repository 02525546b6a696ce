#include "runtime/text/chat/python_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kShownBytes = 200;
// repr() writes floats of these decimal exponents without one.
constexpr int kMinPlainExponent = -4;
constexpr int kMaxPlainExponent = 16;

void write_escaped(TextBuilder& out, const Char& c) {
    // A broken part shows its first byte, as Python's surrogateescape does in spirit.
    const auto byte = static_cast<unsigned char>(c.bytes[0]);
    if (c.code == 0xfffd && c.bytes != "\xef\xbf\xbd") {
        out.append(fmt::format("\\x{:02x}", byte));
    } else if (c.code == '\n') {
        out.append("\\n");
    } else if (c.code == '\r') {
        out.append("\\r");
    } else if (c.code == '\t') {
        out.append("\\t");
    } else if (c.code < 0x100) {
        out.append(fmt::format("\\x{:02x}", static_cast<unsigned>(c.code)));
    } else if (c.code < 0x10000) {
        out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c.code)));
    } else {
        out.append(fmt::format("\\U{:08x}", static_cast<unsigned>(c.code)));
    }
}

void write_text_repr(TextBuilder& out, std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    out.append(quote);
    while (!text.empty()) {
        const Char c = take_char(text);
        const bool broken = c.code == 0xfffd && c.bytes != "\xef\xbf\xbd";
        if (c.code == static_cast<unsigned char>(quote) || c.code == '\\') {
            out.append('\\');
            out.append(c.bytes);
        } else if (!broken && is_printable(c.code)) {
            out.append(c.bytes);
        } else {
            write_escaped(out, c);
        }
    }
    out.append(quote);
}

void write_items(TextBuilder& out, const std::vector<Value>& items, int level) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out.append(", ");
        write_repr(out, items[i], level + 1);
    }
}

void write_sequence(TextBuilder& out, const Value& value, int level) {
    const bool list = value.is(Kind::List);
    out.append(list ? '[' : '(');
    write_items(out, value.items(), level);
    if (!list && value.items().size() == 1) out.append(',');
    out.append(list ? ']' : ')');
}

void write_dict(TextBuilder& out, const Dict& dict, int level) {
    out.append('{');
    bool first = true;
    for (const auto& [key, value] : dict.items()) {
        if (!first) out.append(", ");
        first = false;
        write_repr(out, key, level + 1);
        out.append(": ");
        write_repr(out, value, level + 1);
    }
    out.append('}');
}

}  // namespace

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

void write_repr(TextBuilder& out, const Value& value, int level) {
    if (level > kMaxValueDepth) fail("a value that holds itself has no text");
    switch (value.kind()) {
        case Kind::Text:
            if (value.text().is_markup) out.append("Markup(");
            write_text_repr(out, value.view());
            if (value.text().is_markup) out.append(')');
            break;
        case Kind::List:
        case Kind::Tuple:
            write_sequence(out, value, level);
            break;
        case Kind::Dict:
            write_dict(out, value.dict(), level);
            break;
        case Kind::Object:
            value.object().write_repr(out, level);
            break;
        case Kind::None:
            out.append("None");
            break;
        case Kind::Bool:
            out.append(value.truth() ? "True" : "False");
            break;
        case Kind::Int:
            out.append(fmt::format("{}", value.integer()));
            break;
        case Kind::Float:
            out.append(float_text(value.real()));
            break;
        case Kind::Undefined:
        case Kind::Missing:
            out.append("Undefined");
            break;
    }
}

void write_str(TextBuilder& out, const Value& value) {
    if (value.is_text()) {
        out.append(value.view());
    } else if (!value.is_undefined()) {
        write_repr(out, value);
    }
}

Value to_text(Runtime& runtime, const Value& value) {
    if (value.is_text()) return value;
    runtime.spend_for(value);
    TextBuilder out = runtime.builder();
    write_str(out, value);
    return runtime.text(out.take());
}

std::string quoted(std::string_view text) {
    const bool cut = text.size() > kShownBytes;
    TextBuilder out(16 * kShownBytes);
    write_text_repr(out, cut ? text.substr(0, kShownBytes) : text);
    return out.take() + (cut ? "..." : "");
}

std::string shown(const Value& value) {
    if (value.is_text()) return quoted(value.view());
    try {
        TextBuilder out(kShownBytes);
        write_repr(out, value);
        return out.take();
    } catch (const TemplateError&) {
        return fmt::format("<{}>", type_name(value));  // too much for a message
    }
}

}  // namespace slipstream::jinja
