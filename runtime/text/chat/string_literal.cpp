// Python's string escapes, as Jinja applies them: the literal is encoded as ASCII with backslash escapes for what is
// not, and then decoded as "unicode-escape". So a backslash before a character beyond ASCII eats the backslash of that
// character's own escape, and the escape stays as text: "\é" is \xe9, five characters. Kept, since the prompt must be
// the same.
#include <fmt/format.h>

#include <cstdint>

#include "runtime/text/chat/lexer.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::string_view kSimple = "\\'\"abfnrtv";
constexpr std::string_view kSimpleMeaning = "\\'\"\a\b\f\n\r\t\v";

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char letter = static_cast<char>(c | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

char32_t take_hex(std::string_view& rest, std::size_t n_digits, char kind) {
    char32_t code = 0;
    for (std::size_t i = 0; i < n_digits; ++i) {
        const int digit = rest.empty() ? -1 : hex_digit(rest.front());
        if (digit < 0) fail("truncated \\{}{} escape", kind, std::string(n_digits, 'X'));
        code = code << 4U | static_cast<char32_t>(digit);
        rest.remove_prefix(1);
    }
    return code;
}

char32_t take_octal(std::string_view& rest) {
    char32_t code = 0;
    for (int i = 0; i < 3 && !rest.empty() && rest.front() >= '0' && rest.front() <= '7'; ++i) {
        code = code << 3U | static_cast<char32_t>(rest.front() - '0');
        rest.remove_prefix(1);
    }
    return code;
}

void append_code(std::string& out, char32_t code) {
    if (code > 0x10ffff) fail("illegal Unicode character");
    if (code >= 0xd800 && code < 0xe000) fail("a surrogate in a string: write the character itself, or \\UXXXXXXXX");
    append_utf8(code, out);
}

void append_as_escape(std::string& out, char32_t code) {
    if (code < 0x100) {
        out += fmt::format("x{:02x}", static_cast<unsigned>(code));
    } else if (code < 0x10000) {
        out += fmt::format("u{:04x}", static_cast<unsigned>(code));
    } else {
        out += fmt::format("U{:08x}", static_cast<unsigned>(code));
    }
}

// `rest` stands behind a backslash.
void append_escape(std::string& out, std::string_view& rest) {
    const Char c = first_char(rest);
    if (c.code >= '0' && c.code <= '7') return append_code(out, take_octal(rest));
    rest.remove_prefix(c.bytes.size());
    if (c.code == '\n') return;
    if (c.code == 'x') return append_code(out, take_hex(rest, 2, 'x'));
    if (c.code == 'u') return append_code(out, take_hex(rest, 4, 'u'));
    if (c.code == 'U') return append_code(out, take_hex(rest, 8, 'U'));
    if (c.code == 'N') fail("characters by name (\\N{{...}}) are not served; write the character itself");
    if (c.code < 0x80) {
        if (const auto at = kSimple.find(static_cast<char>(c.code)); at != std::string_view::npos) {
            out.push_back(kSimpleMeaning[at]);
            return;
        }
    }
    out.push_back('\\');
    if (c.code < 0x80) {
        out.append(c.bytes);
    } else {
        append_as_escape(out, c.code);
    }
}

}  // namespace

std::string unescape_literal(std::string_view inside) {
    std::string out;
    std::string_view rest = inside;
    while (!rest.empty()) {
        const std::size_t backslash = rest.find('\\');
        out.append(rest.substr(0, backslash));
        if (backslash == std::string_view::npos) break;
        rest.remove_prefix(backslash + 1);
        if (rest.empty()) fail("\\ at end of string");
        append_escape(out, rest);
    }
    return out;
}

}  // namespace slipstream::jinja
