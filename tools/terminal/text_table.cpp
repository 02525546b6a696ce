#include "tools/terminal/text_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

void TextTable::add(std::vector<std::string> cells) {
    CHECK(cells.size() == rows_.front().size(), "{} cells in {} columns", cells.size(), rows_.front().size());
    rows_.push_back(std::move(cells));
}

std::string TextTable::text(int columns) const {
    constexpr std::size_t kGap = 2;
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_)
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], static_cast<std::size_t>(cells_of(row[i])));
    std::string text;
    for (std::size_t first = 1, end = 1; end < widths.size() || first == 1; first = end) {
        std::size_t width = widths.front();
        for (end = first; end < widths.size(); ++end) {
            width += kGap + widths[end];
            if (columns > 0 && end > first && width > static_cast<std::size_t>(columns)) break;
        }
        if (first > 1) text += "\n";
        for (const auto& row : rows_) {
            const auto add = [&](std::size_t i) {
                text.append(widths[i] - static_cast<std::size_t>(cells_of(row[i])), ' ').append(row[i]);
            };
            add(0);
            for (std::size_t i = first; i < end; ++i) {
                text.append(kGap, ' ');
                add(i);
            }
            text += "\n";
        }
        if (end == widths.size()) break;
    }
    return text;
}

std::string number_text(double value) {
    for (const auto& [limit, decimals] : {std::pair(1000.0, 0), {100.0, 1}, {10.0, 2}, {1.0, 3}, {0.1, 4}, {0.01, 5}})
        if (value >= limit) return fmt::format("{:.{}f}", value, decimals);
    return fmt::format("{:.6f}", value);
}

std::string percent_text(double fraction) {
    return fmt::format("{:.1f}", 100.0 * fraction);
}

}  // namespace slipstream::tools
