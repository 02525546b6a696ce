// What of a text a terminal gets: the one place where control characters of texts and of file names are escaped.
// Newline and tab pass; every other control character, and every byte that is not UTF-8, is written as \xNN, so that no
// text moves the cursor, colours what follows or sets a title. A character that is cut waits for its other half.
//
// Words are wrapped on request: a word waits for its end, and goes to the next line if it would not fit. Where a line
// may break without a blank (text_cells.h) only the last character waits. Of a word that is longer than a line the part
// that exceeds the line does not wait, and the terminal breaks it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

class ShownText {
public:
    /// Wraps words at `columns` from now on; 0: not at all. After a change a terminal has wrapped the line that is
    /// under way anew, as nearly all of them do.
    void wrap_at(int columns) { columns_ = columns; }

    /// The next part of a text, as it is to be written.
    [[nodiscard]] std::string take(std::string_view text);
    /// What still waits: the text has ended.
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
    std::string cut_;  // the beginning of a character

    // Wrapping.
    int line_cells_ = 0;  // written since the last newline; more than columns_ after a word longer than a line
    std::string blanks_;  // before the word, not written yet
    std::string word_;    // that may still grow, not written yet
    int word_cells_ = 0;
    bool is_long_word_ = false;  // the beginning of the word is written already, as much as a line holds or more
    CharacterBorders borders_;
    // The last character of the word, which may have several code points.
    std::size_t character_begin_ = 0;  // in word_
    int character_cells_ = 0;
    char32_t first_code_ = 0;
    char32_t last_code_ = 0;
};

/// A whole text, escaped.
[[nodiscard]] std::string shown_text(std::string_view text);

}  // namespace slipstream::tools
