// A table for people: columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace slipstream::tools {

class TextTable {
public:
    explicit TextTable(std::vector<std::string> headers) : rows_{std::move(headers)} {}

    /// CHECKs that there are as many cells as headers.
    void add(std::vector<std::string> cells);
    /// Lines, headers first; all right-aligned, two spaces between columns. What is wider than a screen of `columns`
    /// (0: no limit) goes on below, in further tables that begin with the first column again.
    [[nodiscard]] std::string text(int columns = 0) const;

private:
    std::vector<std::vector<std::string>> rows_;
};

/// Four significant digits, never as a power of ten; small ones with up to six decimals.
[[nodiscard]] std::string number_text(double value);
/// 0.256 -> "25.6".
[[nodiscard]] std::string percent_text(double fraction);

}  // namespace slipstream::tools
