// Sizes in bytes as text, for messages and for options.
#pragma once

#include <cstddef>
#include <string>

namespace slipstream {

/// Returns a size as messages show it: "1.4 GiB", "312 KiB", "17 bytes".
[[nodiscard]] std::string size_text(std::size_t bytes);

/// Returns a size as options take it, rounded up, never below `bytes`: "600K", "15M", "12.4G".
[[nodiscard]] std::string size_option_text(std::size_t bytes);

}  // namespace slipstream
