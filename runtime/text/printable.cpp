#include "runtime/text/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace slipstream {

namespace {

// Length of the well-formed UTF-8 character at the start of `text` (Unicode standard, table 3-7), or 0.
std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const bool overlong = first == 0xE0 && byte(1) < 0xA0;
        const bool surrogate = first == 0xED && byte(1) > 0x9F;
        return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const bool overlong = first == 0xF0 && byte(1) < 0x90;
        const bool beyond = first == 0xF4 && byte(1) > 0x8F;
        return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
    std::string out;
    std::size_t at = 0;
    while (at < text.size() && at < max_bytes) {
        const std::size_t length = character_length(text.substr(at));
        const auto first = static_cast<unsigned char>(text[at]);
        // C1 controls (C2 80 to C2 9F) move terminals as well as C0 ones do.
        const bool control = first < 0x20 || first == 0x7F ||
                             (first == 0xC2 && length == 2 && static_cast<unsigned char>(text[at + 1]) < 0xA0);
        if (length == 0 || control) {
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
