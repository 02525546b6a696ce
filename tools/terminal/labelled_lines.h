// Builds the text of a report for people: lines that consist of a label and a value.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

class LabelledLines {
public:
    /// Lines are folded at `columns` terminal cells (0: not folded); the continuation of a value is aligned with the
    /// value.
    explicit LabelledLines(int columns = 0) : columns_(columns) {}

    /// Appends a line: `label`, padded to 16 characters, a blank, and `value`.
    void add(std::string_view label, std::string_view value) {
        text_ += folded(fmt::format("{:<16} {}\n", label, value), columns_, 17);
    }
    /// Appends `line` without a label; its continuation lines are indented by two blanks.
    void raw(std::string_view line) { text_ += folded(fmt::format("{}\n", line), columns_); }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    int columns_;
    std::string text_;
};

}  // namespace slipstream::tools
