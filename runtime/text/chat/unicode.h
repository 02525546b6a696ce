// Text as Python's str sees it: code points, its idea of white space, its case mappings and character classes (by
// utf8proc). All functions take UTF-8 as it comes: a broken part (a maximal one, utf8.h) is one character, U+FFFD to
// the classes, and its bytes pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/text/chat/text_builder.h"
#include "runtime/text/utf8.h"

namespace slipstream::jinja {

/// A character where it stands.
struct Char {
    std::string_view bytes;
    char32_t code;
    [[nodiscard]] bool is_broken() const { return code == 0xfffd && bytes != kReplacementCharacter; }
};

/// The first or last character of `text`, which is not empty.
[[nodiscard]] Char first_char(std::string_view text);
[[nodiscard]] Char last_char(std::string_view text);
/// Takes the first character off `text`, which is not empty.
Char take_char(std::string_view& text);

[[nodiscard]] std::int64_t count_chars(std::string_view text);
/// Where character `index` begins, in bytes; the size of `text` for an index at or past the end.
[[nodiscard]] std::size_t byte_offset(std::string_view text, std::int64_t index);

[[nodiscard]] bool is_space(char32_t code);       // str.isspace(), \s
[[nodiscard]] bool is_line_break(char32_t code);  // where str.splitlines() cuts
[[nodiscard]] bool is_printable(char32_t code);   // what repr() leaves as it is
[[nodiscard]] bool is_lower(char32_t code);
[[nodiscard]] bool is_upper(char32_t code);

enum class LetterCase : std::uint8_t { Upper, Lower, Title };
/// Appends the part of `text` with each character mapped (full mappings, as str.upper() and the others have them), each
/// with the mark of what it comes from.
void append_mapped(TextBuilder& out, const MarkedText& text, TextSpan part, LetterCase to);

/// The part of `text` without white space at its ends, or without what `goes`.
enum class Ends : std::uint8_t { Left, Right, Both };
[[nodiscard]] TextSpan stripped(std::string_view text, Ends ends);
[[nodiscard]] TextSpan stripped(std::string_view text, Ends ends, const std::function<bool(const Char&)>& goes);

}  // namespace slipstream::jinja
