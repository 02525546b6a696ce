// Splits comma-separated lists.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// Returns the parts of `list` between its commas: "a,b" -> "a" and "b". Empty parts are kept, so an empty list has one
/// part. The parts refer to the memory of `list`, which must outlive them.
[[nodiscard]] inline std::vector<std::string_view> split_list(std::string_view list) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

}  // namespace slipstream::tools
