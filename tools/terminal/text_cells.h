// Terminal cells of text: how many columns a text takes, which code points form one character, where a line may break.
//
// Widths are those of wcwidth() in a UTF-8 locale, but are computed by utf8proc, so that they do not depend on the
// locale of the process. The width of a character of several code points (combining marks, emoji joined by ZWJ, flags)
// is the sum of the widths of its code points: on terminals that draw it narrower, lines are only wrapped a little
// early.
#pragma once

#include <cstdint>
#include <string_view>

namespace slipstream::tools {

/// Returns the number of terminal cells of one code point: 0, 1 or 2; 0 for control characters.
[[nodiscard]] int cells_of(char32_t code);
/// Returns the number of terminal cells of the UTF-8 `text`. Each byte that is not UTF-8 counts as one cell; the
/// variation selector U+FE0F adds a cell to a code point of one cell.
[[nodiscard]] int cells_of(std::string_view text);

/// Finds the borders between characters (extended grapheme clusters of UAX #29) in a stream of code points.
class CharacterBorders {
public:
    /// Returns true if `code`, the code point that follows those of earlier calls, begins a character. Must be called
    /// once for each code point of the stream, in order.
    [[nodiscard]] bool begins_character(char32_t code);

private:
    char32_t last_ = U'\n';
    std::int32_t state_ = 0;  // of utf8proc_grapheme_break_stateful()
};

/// Returns whether a line may break between two adjacent characters that have no blank between them. `before` and
/// `after` are the first code points of the two characters, `before_last` is the last code point of the first
/// character. A line may break before and after ideographs, kana, emoji and the characters of South-East Asian scripts,
/// which are written without blanks and whose words could only be found with a dictionary. It does not break before
/// closing punctuation, small kana and trailing vowels, nor after opening punctuation and leading vowels. It always may
/// break after U+200B.
[[nodiscard]] bool may_break_between(char32_t before, char32_t before_last, char32_t after);

}  // namespace slipstream::tools
