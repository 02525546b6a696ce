// Python's string escapes.
#include <algorithm>
#include <charconv>

#include "runtime/text/chat/lexer.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/utf8.h"

namespace slipstream::jinja {

namespace {

void append_number(std::string& out, std::string_view& rest, std::size_t n_digits, int base) {
    std::uint32_t code = 0;
    const char* end = rest.data() + std::min(n_digits, rest.size());
    const auto [stop, error] = std::from_chars(rest.data(), end, code, base);
    const auto n_read = static_cast<std::size_t>(stop - rest.data());
    if (error != std::errc() || (base == 16 && n_read < n_digits)) fail("a truncated escape in a string");
    if (code > 0x10ffff) fail("illegal Unicode character");
    if (code >= 0xd800 && code < 0xe000) fail("a surrogate in a string: write the character itself, or \\UXXXXXXXX");
    append_utf8(code, out);
    rest.remove_prefix(n_read);
}

}  // namespace

std::string unescape_literal(std::string_view inside) {
    constexpr std::string_view kSimple = "\\'\"abfnrtv";
    constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (std::string_view rest = inside; !rest.empty();) {
        const std::size_t backslash = std::min(rest.find('\\'), rest.size());
        out.append(rest.substr(0, backslash));
        rest.remove_prefix(backslash);
        if (rest.empty()) break;
        if (rest.size() == 1) fail("\\ at end of string");
        const char kind = rest[1];
        if (kind >= '0' && kind <= '7') {
            rest.remove_prefix(1);
            append_number(out, rest, 3, 8);
            continue;
        }
        rest.remove_prefix(2);
        if (const std::size_t at = kSimple.find(kind); at != std::string_view::npos) {
            out += kMeaning[at];
        } else if (kind == 'x' || kind == 'u' || kind == 'U') {
            append_number(out, rest, kind == 'x' ? 2 : kind == 'u' ? 4 : 8, 16);
        } else if (kind == 'N') {
            fail("characters by name (\\N{{...}}) are not served; write the character itself");
        } else if (kind != '\n') {
            out.append({'\\', kind});  // no escape: both characters stay
        }
    }
    return out;
}

}  // namespace slipstream::jinja
