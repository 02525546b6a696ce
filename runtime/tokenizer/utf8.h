// One step through bytes that ought to be UTF-8. Well-formed as in the Unicode Standard, table 3-7: no overlong forms,
// no surrogates, nothing beyond U+10FFFF. Broken bytes are counted in maximal subparts (same chapter, "U+FFFD
// substitution of maximal subparts", the rule of the web's decoders as well).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slipstream {

enum class Utf8Kind : std::uint8_t {
    Complete,   // a character of `length` bytes
    Broken,     // `length` bytes that no continuation can mend
    Unfinished  // the whole rest, `length` bytes, is the beginning of a character
};

struct Utf8Step {
    Utf8Kind kind;
    std::size_t length;  // >= 1
};

/// What stands at the beginning of `text`, which is not empty.
[[nodiscard]] inline Utf8Step next_utf8(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {Utf8Kind::Complete, 1};
    if (lead < 0xc2 || lead > 0xf4) return {Utf8Kind::Broken, 1};
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // The second byte's range depends on the lead: this is where overlong forms and surrogates are refused.
    unsigned low = 0x80;
    unsigned high = 0xbf;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (std::size_t i = 1; i < length; ++i, low = 0x80, high = 0xbf) {
        if (i == text.size()) return {Utf8Kind::Unfinished, i};
        if (byte(i) < low || byte(i) > high) return {Utf8Kind::Broken, i};
    }
    return {Utf8Kind::Complete, length};
}

/// The replacement character U+FFFD.
inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

}  // namespace slipstream
