// Follows the column of a terminal's cursor while text is written, as far as the column can be known. If the column is
// unknown, the program must not draw anything beside the text and erase it again.
//
// The column is known after printable ASCII, which is one column wide on every terminal, and after a newline. Terminals
// differ in how they show other characters (quotes, ideographs, emoji, tabs, a carriage return over old text), so after
// one of these the column is unknown until the next newline. Other control characters may move the cursor anywhere, so
// after one of them the column stays unknown for good.
#pragma once

#include <optional>
#include <string_view>

namespace slipstream::tools {

/// The column of the cursor of one terminal, which starts at the beginning of a line.
class CursorColumn {
public:
    /// Call after `text` was written to a terminal that is `columns` (> 0) wide. `text` may be any bytes, cut anywhere.
    /// If the width has changed since the last call and the line is not empty, the column becomes unknown until the
    /// next newline, since the terminal may have wrapped the line again.
    void advance(std::string_view text, int columns);

    /// Returns the number of used columns of the cursor's line, 0 to the width of the terminal, or nullopt if it is
    /// unknown. The full width means that the line is full and that the cursor is still on its last character.
    [[nodiscard]] std::optional<int> column() const;

private:
    enum class Knowledge : unsigned char { Known, UnknownOnThisLine, Lost };
    Knowledge knowledge_ = Knowledge::Known;
    int column_ = 0;
    int columns_ = 0;  // width of the terminal at the last advance(); 0: not called yet
};

}  // namespace slipstream::tools
