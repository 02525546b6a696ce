// Ranges of the values that an option, or a key of a file, accepts.
#pragma once

#include <limits>
#include <string>

#include <fmt/format.h>

namespace slipstream::tools {

/// A range of values that includes both ends; by default all values of the type.
template <typename T>
struct Range {
    T lowest = std::numeric_limits<T>::lowest();
    T highest = std::numeric_limits<T>::max();
};

/// Returns the range in words: "from 0 to 1", or "of at least 1" if the highest value is that of the type.
template <typename T>
[[nodiscard]] std::string limits_text(Range<T> range) {
    return range.highest == Range<T>().highest ? fmt::format("of at least {}", range.lowest)
                                               : fmt::format("from {} to {}", range.lowest, range.highest);
}

}  // namespace slipstream::tools
