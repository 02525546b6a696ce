// Builds a table as text for people; each column is as wide as its widest cell.
#pragma once

#include <string>
#include <vector>

namespace slipstream::tools {

class TextTable {
public:
    /// `headers`: one per column, at least one.
    explicit TextTable(std::vector<std::string> headers) : rows_{std::move(headers)} {}

    /// Appends a row. There must be as many cells as headers (CHECKed).
    void add(std::vector<std::string> cells);
    /// Returns the lines of the table, the headers first; cells are right-aligned, with two spaces between columns. If
    /// the table is wider than `columns` terminal cells (0: no limit), the columns that do not fit follow below in
    /// further tables, which repeat the first column.
    [[nodiscard]] std::string text(int columns = 0) const;

private:
    std::vector<std::vector<std::string>> rows_;  // the first row holds the headers
};

/// Returns `value` with four significant digits, never with an exponent: from 1000 on all digits before the decimal
/// point and no decimals, below 0.01 (negative values too) six decimals.
[[nodiscard]] std::string number_text(double value);
/// Returns a fraction in percent with one decimal, without "%": 0.256 -> "25.6".
[[nodiscard]] std::string percent_text(double fraction);

}  // namespace slipstream::tools
