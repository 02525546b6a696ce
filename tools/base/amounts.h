// Amounts and times in words, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/size_text.h"

namespace slipstream::tools {

using slipstream::size_text;

/// Returns a remaining time in words: "9 s left", "12 min left", "3 h 05 min left". The time is rounded to whole
/// seconds below 90 s, else to whole minutes; `seconds` is limited to [0, 1e9].
[[nodiscard]] std::string time_left_text(double seconds);

/// Returns a count with its noun: "1 token", "12 tokens". `noun` is the singular; unless `n` is 1, an "s" is appended.
[[nodiscard]] std::string counted(std::int64_t n, std::string_view noun);

}  // namespace slipstream::tools
