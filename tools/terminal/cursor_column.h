// Where the cursor of a terminal stands behind text of any kind, as far as that can be known: nothing may be drawn
// beside text and erased again where it is not.
//
// Known are printable ASCII, which is one column wide everywhere, and the end of a line. What a terminal makes of other
// characters (quotes, ideographs, emoji, tabs, a carriage return over old text) differs, so behind one of them the
// column is unknown up to the next newline; behind other control characters, which may move anything, for good.
#pragma once

#include <optional>
#include <string_view>

namespace slipstream::tools {

class CursorColumn {
public:
    /// `text` (any bytes, cut anywhere) was written to a terminal of `columns` (> 0). A width other than before makes
    /// the column unknown: the terminal may have wrapped the line anew.
    void advance(std::string_view text, int columns);

    /// Columns of the line that are used, 0 to `columns`; `columns` itself stands for a full line, where the cursor
    /// waits on the last character. Nothing where unknown.
    [[nodiscard]] std::optional<int> column() const;

private:
    enum class Knowledge : unsigned char { Known, UnknownOnThisLine, Lost };
    Knowledge knowledge_ = Knowledge::Known;
    int column_ = 0;
    int columns_ = 0;  // as of the last call
};

}  // namespace slipstream::tools
