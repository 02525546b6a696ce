#include "tools/base/closest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace slipstream::tools {

namespace {

std::size_t distance(std::string_view one, std::string_view other) {
    std::vector<std::size_t> row(other.size() +
                                 1);  // distances between the letters of `one` so far and each prefix of `other`
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < one.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < other.size(); ++j) {
            const std::size_t changed = diagonal + (one[i] == other[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string_view closest_name(std::string_view name, std::span<const std::string_view> names) {
    if (name.empty() || name.size() > 64) return {};
    std::string_view best;
    std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
    for (const std::string_view known : names) {
        const std::size_t differs = known.starts_with(name) ? 0 : distance(name, known);
        if (differs >= least || differs >= std::max(name.size(), known.size())) continue;
        least = differs;
        best = known;
    }
    return best;
}

}  // namespace slipstream::tools
