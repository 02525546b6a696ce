// Finds the known name that a mistyped one was probably meant to be.
#pragma once

#include <span>
#include <string_view>

namespace slipstream::tools {

/// Returns the name of `names` with the smallest edit distance (Levenshtein) to `name`, the first of equals. If `name`
/// is a prefix of a known name, the distance counts as 0. Ignores names whose distance is more than 2 and more than a
/// third of the length of `name`, or not less than the length of the longer of the two names. Returns an empty view if
/// no name is left, or if `name` is empty or longer than 64 bytes.
[[nodiscard]] std::string_view closest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace slipstream::tools
