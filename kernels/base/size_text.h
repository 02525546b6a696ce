// Sizes in words, as messages have them.
#pragma once

#include <cstddef>
#include <string>

namespace slipstream {

/// "1.4 GiB", "312 KiB", "17 bytes".
[[nodiscard]] std::string size_text(std::size_t bytes);

/// A size as options take it, not below `bytes`: "600K", "15M", "12.4G".
[[nodiscard]] std::string size_option_text(std::size_t bytes);

}  // namespace slipstream
