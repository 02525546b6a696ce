// Amounts in words, as messages have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/size_text.h"

namespace slipstream::tools {

using slipstream::size_text;

/// "9 s left", "12 min left", "3 h 05 min left".
[[nodiscard]] std::string time_left_text(double seconds);

/// "1 token", "12 tokens".
[[nodiscard]] std::string counted(std::int64_t n, std::string_view noun);

}  // namespace slipstream::tools
