// Reading of bytes that should be UTF-8, one character at a time. Well-formed is what table 3-7 of the Unicode Standard
// allows: no overlong forms, no surrogates, nothing above U+10FFFF. Broken bytes are counted in maximal subparts (same
// chapter, "U+FFFD substitution of maximal subparts"; decoders of the web follow the same rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream {

enum class Utf8Kind : std::uint8_t {
    Complete,   // a character of `length` bytes
    Broken,     // `length` bytes that no continuation can make a character
    Unfinished  // all bytes that are left, `length` of them, are the beginning of a character
};

/// The result of next_utf8(): the kind of the bytes at the beginning of a text, and their number.
struct Utf8Step {
    Utf8Kind kind;
    std::size_t length;  // >= 1
};

/// Returns the kind and the length, in bytes, of the first character of `text`, or of the broken or unfinished part
/// with which `text` begins. `text` must not be empty.
[[nodiscard]] inline Utf8Step next_utf8(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {Utf8Kind::Complete, 1};
    if (lead < 0xc2 || lead > 0xf4) return {Utf8Kind::Broken, 1};
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // The range of the second byte depends on the lead byte; this excludes overlong forms and surrogates.
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

/// Returns the code point of the first character of `text`. `text` must begin with a complete character.
[[nodiscard]] inline char32_t code_point(std::string_view text) {
    const auto byte = [text](std::size_t i) { return char32_t{static_cast<unsigned char>(text[i])}; };
    if (byte(0) < 0x80) return byte(0);
    if (byte(0) < 0xe0) return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
    if (byte(0) < 0xf0) return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 | (byte(3) & 0x3fU);
}

/// Returns the byte position of the last character of `text`, which must be valid UTF-8 and not empty.
[[nodiscard]] inline std::size_t last_character(std::string_view text) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80) --begin;
    return begin;
}

/// Appends `point` to `out` as UTF-8. `point` must be at most U+10FFFF and not a surrogate.
inline void append_utf8(char32_t point, std::string& out) {
    const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
    if (point < 0x80) {
        put(point);
    } else if (point < 0x800) {
        put(0xc0U | point >> 6);
        put(0x80U | (point & 0x3fU));
    } else if (point < 0x10000) {
        put(0xe0U | point >> 12);
        put(0x80U | (point >> 6 & 0x3fU));
        put(0x80U | (point & 0x3fU));
    } else {
        put(0xf0U | point >> 18);
        put(0x80U | (point >> 12 & 0x3fU));
        put(0x80U | (point >> 6 & 0x3fU));
        put(0x80U | (point & 0x3fU));
    }
}

/// Returns whether `point` is a control character: C0, DEL or C1. Terminals obey all of them, also C1 in UTF-8.
[[nodiscard]] inline bool is_control(char32_t point) {
    return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

/// Returns whether `point` has the Unicode property White_Space.
[[nodiscard]] inline bool is_white_space(char32_t point) {
    return (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 || point == 0x202f ||
           point == 0x205f || point == 0x3000;
}

/// Returns the number of bytes at the beginning of `text` that are complete characters.
[[nodiscard]] inline std::size_t valid_utf8_prefix(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size()) {
        if (static_cast<unsigned char>(text[end]) < 0x80) {
            ++end;
            continue;
        }
        const Utf8Step step = next_utf8(text.substr(end));
        if (step.kind != Utf8Kind::Complete) break;
        end += step.length;
    }
    return end;
}

/// The replacement character U+FFFD, in UTF-8: written in place of bytes that are not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

}  // namespace slipstream
