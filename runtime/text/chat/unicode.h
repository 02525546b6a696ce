// Text as Python's str sees it: code points, its idea of white space, its case mappings and character classes. All
// functions take UTF-8 as it comes: a broken part (a maximal one, tokenizer/utf8.h) is one character, U+FFFD to the
// classes, and its bytes pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream::jinja {

/// A character where it stands.
struct Char {
    std::string_view bytes;
    char32_t code;
};

/// The first character of `text`, which is not empty.
[[nodiscard]] Char first_char(std::string_view text);
/// The last one.
[[nodiscard]] Char last_char(std::string_view text);
/// Takes the first character off `text`, which is not empty.
Char take_char(std::string_view& text);

[[nodiscard]] std::int64_t count_chars(std::string_view text);
/// Where character `index` begins, in bytes; the size of `text` for an index at or past the end.
[[nodiscard]] std::size_t byte_offset(std::string_view text, std::int64_t index);

/// Appends in UTF-8; surrogates and what is beyond U+10FFFF must not come here.
void append_utf8(std::string& out, char32_t code);

[[nodiscard]] bool is_space(char32_t code);       // str.isspace(), \s
[[nodiscard]] bool is_line_break(char32_t code);  // where str.splitlines() cuts
[[nodiscard]] bool is_printable(char32_t code);   // what repr() leaves as it is
[[nodiscard]] bool is_alpha(char32_t code);
[[nodiscard]] bool is_decimal(char32_t code);
[[nodiscard]] bool is_digit(char32_t code);
[[nodiscard]] bool is_numeric(char32_t code);
[[nodiscard]] bool is_lower(char32_t code);
[[nodiscard]] bool is_upper(char32_t code);
[[nodiscard]] bool is_title(char32_t code);
[[nodiscard]] bool is_word(char32_t code);  // \w: letters, numbers, underscore
[[nodiscard]] bool is_identifier_start(char32_t code);
[[nodiscard]] bool is_identifier_part(char32_t code);
/// The value of a decimal digit of any script, or -1.
[[nodiscard]] int decimal_value(char32_t code);

[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string to_title(std::string_view text);    // str.title()
[[nodiscard]] std::string capitalize(std::string_view text);  // str.capitalize()
[[nodiscard]] std::string swap_case(std::string_view text);

/// White space off both ends, or off one.
[[nodiscard]] std::string_view strip_left(std::string_view text);
[[nodiscard]] std::string_view strip_right(std::string_view text);
[[nodiscard]] std::string_view strip(std::string_view text);
/// The same for any characters of `chars`.
[[nodiscard]] std::string_view strip_left(std::string_view text, std::string_view chars);
[[nodiscard]] std::string_view strip_right(std::string_view text, std::string_view chars);

}  // namespace slipstream::jinja
