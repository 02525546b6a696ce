// Of several names the one that a mistyped one is meant to be.
#pragma once

#include <span>
#include <string_view>

namespace slipstream::tools {

/// The name with the fewest letters inserted, left out or changed (Levenshtein's distance), the first of equals; a
/// beginning of a name counts as that name. Empty where more than a third of the letters, and more than two, differ.
[[nodiscard]] std::string_view closest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace slipstream::tools
