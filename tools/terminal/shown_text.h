// What of a text a terminal gets: the one place where control characters of model output and of file names are escaped.
// Newline and tab pass; every other control character, and every byte that is not UTF-8, is written as \xNN, so that no
// text moves the cursor, colours what follows or sets a title. A character that is cut waits for its other half.
//
// Where asked for, words are wrapped: a word waits for its end, and goes to the next line where it would not fit.
#pragma once

#include <string>
#include <string_view>

namespace slipstream::tools {

class ShownText {
public:
    /// Words are wrapped at so many columns from now on; 0: not at all.
    void wrap_at(int columns) { columns_ = columns; }

    /// The next piece of a text, as it is to be written.
    [[nodiscard]] std::string take(std::string_view piece);
    /// What still waits: the text has ended.
    [[nodiscard]] std::string rest();

private:
    [[nodiscard]] std::string escaped(std::string_view piece);
    [[nodiscard]] std::string placed(std::string_view text);
    void place_word(std::string& out);

    int columns_ = 0;
    std::string cut_;     // the beginning of a character
    std::string word_;    // that may still grow
    std::string blanks_;  // in front of it
    int column_ = 0;      // behind what was given out, a character a column
};

}  // namespace slipstream::tools
