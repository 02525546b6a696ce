// Text as Python's str sees it: code points, Python's definition of white space, its case mappings and character
// classes (computed by utf8proc). All functions take UTF-8 that may be broken: a broken part (a maximal subpart,
// utf8.h) counts as one character, has the class of U+FFFD, and its bytes are copied unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/text/chat/text_builder.h"
#include "runtime/text/utf8.h"

namespace slipstream::jinja {

/// A character: its bytes, as a view of the text, and its code point.
struct Char {
    std::string_view bytes;
    char32_t code;
    [[nodiscard]] bool is_broken() const { return code == 0xfffd && bytes != kReplacementCharacter; }
};

/// Return the first or last character of `text`, which must not be empty.
[[nodiscard]] Char first_char(std::string_view text);
[[nodiscard]] Char last_char(std::string_view text);
/// Removes the first character from `text`, which must not be empty, and returns it.
Char take_char(std::string_view& text);

[[nodiscard]] std::int64_t count_chars(std::string_view text);
/// Returns the byte position at which character `index` begins, or text.size() if `index` is at or past the end.
[[nodiscard]] std::size_t byte_offset(std::string_view text, std::int64_t index);

[[nodiscard]] bool is_space(char32_t code);       // whether str.isspace() and \s count it as white space
[[nodiscard]] bool is_line_break(char32_t code);  // whether it ends a line for str.splitlines()
[[nodiscard]] bool is_printable(char32_t code);   // whether repr() writes it without escaping it
[[nodiscard]] bool is_lower(char32_t code);
[[nodiscard]] bool is_upper(char32_t code);

enum class LetterCase : std::uint8_t { Upper, Lower, Title };
/// Appends the bytes `part` of `text` with each character mapped to the case `to` (full mappings, as str.upper(),
/// str.lower() and str.title() have them), as if the text began at byte `word_begin`: what stands before a capital
/// sigma decides its small form. A mapped character gets the mark of the character that it comes from.
void append_mapped(TextBuilder& out, const MarkedText& text, TextSpan part, LetterCase to, std::size_t word_begin = 0);

enum class Ends : std::uint8_t { Left, Right, Both };
/// Return the part of `text` without white space at the given ends, or without characters for which `goes`(character)
/// is true.
[[nodiscard]] TextSpan stripped(std::string_view text, Ends ends);
[[nodiscard]] TextSpan stripped(std::string_view text, Ends ends, const std::function<bool(const Char&)>& goes);

}  // namespace slipstream::jinja
