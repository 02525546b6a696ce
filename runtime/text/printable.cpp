#include "runtime/text/printable.h"

#include <fmt/format.h>

#include <iterator>

#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Returns whether a character of three bytes is a mark that changes the direction of the text after it (U+202A to
// U+202E, U+2066 to U+2069). With such a mark, a name could be displayed as another one.
bool turns_direction(std::string_view character) {
    const auto last = static_cast<unsigned char>(character[2]);
    return (character.starts_with("\xE2\x80") && last >= 0xAA && last <= 0xAE) ||
           (character.starts_with("\xE2\x81") && last >= 0xA6 && last <= 0xA9);
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
    std::string out;
    std::size_t at = 0;
    while (at < text.size() && at < max_bytes) {
        const Utf8Step step = next_utf8(text.substr(at));
        const std::size_t length = step.kind == Utf8Kind::Complete ? step.length : 0;
        const auto first = static_cast<unsigned char>(text[at]);
        if (length == 3 && turns_direction(text.substr(at, 3))) {
            for (const char byte : text.substr(at, 3))
                fmt::format_to(std::back_inserter(out), "\\x{:02X}", static_cast<unsigned char>(byte));
            at += 3;
        } else if (length == 0 || is_control(code_point(text.substr(at)))) {
            fmt::format_to(std::back_inserter(out), "\\x{:02X}", first);
            at += 1;
        } else {
            out.append(text.substr(at, length));
            at += length;
        }
    }
    if (at < text.size()) out += "...";
    return out;
}

}  // namespace slipstream
