// Lines of a report for people: a label, and what it says.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

class LabelledLines {
public:
    /// Lines are folded at so many columns, values under themselves; 0: not at all.
    explicit LabelledLines(int columns = 0) : columns_(columns) {}

    void add(std::string_view label, std::string_view value) {
        text_ += folded(fmt::format("{:<16} {}\n", label, value), columns_, 17);
    }
    void raw(std::string_view line) { text_ += folded(fmt::format("{}\n", line), columns_); }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    int columns_;
    std::string text_;
};

}  // namespace slipstream::tools
