// Parts of texts: what stands between commas, and how many letters there are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// "a,b" -> "a" and "b"; empty parts stay.
[[nodiscard]] inline std::vector<std::string_view> split_list(std::string_view list) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

/// Characters of UTF-8, which take a column each but for those of wide scripts.
[[nodiscard]] inline std::size_t letters_of(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace slipstream::tools
