// Lines of a report for people: a label, and what it says.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace slipstream::tools {

class LabelledLines {
public:
    void add(std::string_view label, std::string_view value) { text_ += fmt::format("{:<16} {}\n", label, value); }
    void raw(std::string_view line) { text_ += fmt::format("{}\n", line); }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_;
};

}  // namespace slipstream::tools
