#include "tools/terminal/cursor_column.h"

namespace slipstream::tools {

void CursorColumn::advance(std::string_view text, int columns) {
    if (columns != columns_ && columns_ != 0 && column_ != 0 && knowledge_ == Knowledge::Known)
        knowledge_ = Knowledge::UnknownOnThisLine;
    columns_ = columns;
    for (const char c : text) {
        if (knowledge_ == Knowledge::Lost) return;
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n') {
            knowledge_ = Knowledge::Known;
            column_ = 0;
        } else if (byte >= 0x20 && byte < 0x7f) {
            column_ = column_ == columns ? 1 : column_ + 1;  // the character after a full line goes to the next line
        } else {
            const bool stays_on_line = byte >= 0x80 || c == '\t' || c == '\r';
            knowledge_ = stays_on_line ? Knowledge::UnknownOnThisLine : Knowledge::Lost;
        }
    }
}

std::optional<int> CursorColumn::column() const {
    return knowledge_ == Knowledge::Known ? std::optional(column_) : std::nullopt;
}

}  // namespace slipstream::tools
