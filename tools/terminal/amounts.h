// Amounts in words, as messages have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// "9 s left", "12 min left", "3 h 05 min left".
[[nodiscard]] std::string time_left_text(double seconds);

/// "1.4 GiB", "312 KiB", "17 bytes".
[[nodiscard]] std::string size_text(std::size_t bytes);

/// "1 token", "12 tokens".
[[nodiscard]] std::string counted(std::int64_t n, std::string_view noun);

}  // namespace slipstream::tools
