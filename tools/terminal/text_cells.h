// Terminal cells of text: how many columns it takes, which code points form one character, and where a line may break.
//
// Widths are those of wcwidth() in a UTF-8 locale, from utf8proc, so that they do not depend on the locale of the
// process. A character of several code points (combining marks, emoji joined by ZWJ, flags) counts the sum of its code
// points: terminals that draw it narrower only wrap a little early.
#pragma once

#include <cstdint>
#include <string_view>

namespace slipstream::tools {

/// Cells of one code point: 0, 1 or 2; 0 for control characters.
[[nodiscard]] int cells_of(char32_t code);
/// Cells of `text`, in which each byte that is not UTF-8 counts as one.
[[nodiscard]] int cells_of(std::string_view text);

/// Finds the borders between characters (extended grapheme clusters of UAX #29) in a stream of code points.
class CharacterBorders {
public:
    /// True if `code`, which follows the code points of earlier calls, begins a character.
    [[nodiscard]] bool begins_character(char32_t code);

private:
    char32_t last_ = U'\n';
    std::int32_t state_ = 0;  // of utf8proc
};

/// Whether a line may break between two adjacent characters without a blank between them, by their first code points;
/// `before_last` is the last code point of the first one. Ideographs, kana and emoji break on both sides, and so do the
/// scripts of South-East Asia, which write no blanks and whose words would need a dictionary. Closing punctuation,
/// small kana and trailing vowels stay with the character before them, opening punctuation and leading vowels with the
/// one after them.
[[nodiscard]] bool may_break_between(char32_t before, char32_t before_last, char32_t after);

}  // namespace slipstream::tools
