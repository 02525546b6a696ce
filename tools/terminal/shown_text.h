// Converts text to what a terminal gets. This is the only place where control characters of texts and of file names are
// escaped. Newline and tab are kept; every other control character, and every byte that is not UTF-8, is written as
// \xNN, so no text can move the cursor, colour the output after it or set a title. The first bytes of a character that
// is cut are held back until the rest of the character arrives.
//
// Words are wrapped on request: a word is held back until its end is known, and goes to the next line if it does not
// fit. Where a line may break without a blank (text_cells.h), only the last character is held back. If a word is longer
// than a line, the part beyond the line is not held back, and the terminal breaks the word.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

/// Escapes and wraps one text for a terminal, part by part.
class ShownText {
public:
    /// Wraps words at `columns` terminal cells from now on; 0 (the initial value): words are not wrapped. If the width
    /// changes within a line, the terminal is assumed to wrap that line again at its new width, as nearly all do.
    void wrap_at(int columns) { columns_ = columns; }

    /// Returns the bytes to write to the terminal after the next part of the text, `text`, is known. The end of the
    /// text (a cut character, a word) may be held back until a later take() or rest().
    [[nodiscard]] std::string take(std::string_view text);
    /// Call when the text has ended or pauses: returns the bytes that are still held back. The bytes of a cut character
    /// are escaped.
    [[nodiscard]] std::string rest();

private:
    [[nodiscard]] std::string escaped(std::string_view text);
    void place(std::string_view text, std::string& out);
    void add_to_word(std::string_view text, char32_t code, bool begins_character, std::string& out);
    void place_blanks(std::string& out, int room_after);
    void place_word(std::string& out);
    void begin_long_word(std::string& out);
    void place_part(std::string& out);
    void end_line(std::string& out);
    [[nodiscard]] int column() const;

    int columns_ = 0;
    std::string cut_;  // first bytes of a character whose other bytes have not arrived

    // State of the wrapping.

    int line_cells_ = 0;  // cells written since the last newline; more than columns_ after a word longer than a line
    std::string blanks_;  // blanks before the word, not written yet
    std::string word_;    // the word (of a long word the unwritten end), which may still grow
    int word_cells_ = 0;  // cells of word_
    bool is_long_word_ = false;  // the word is longer than a line, and its beginning has been written
    CharacterBorders borders_;
    std::size_t character_begin_ = 0;  // byte offset in word_ of its last character, which may have several code points
    int character_cells_ = 0;          // cells of that character
    char32_t first_code_ = 0;          // first code point of that character
    char32_t last_code_ = 0;           // last code point of that character
};

/// Returns the whole `text` escaped as ShownText does it, without wrapping.
[[nodiscard]] std::string shown_text(std::string_view text);

}  // namespace slipstream::tools
