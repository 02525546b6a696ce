#include "tools/base/amounts.h"

#include <algorithm>

#include <fmt/format.h>

namespace slipstream::tools {

std::string time_left_text(double seconds) {
    constexpr double kMostSeconds = 1e9;
    const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, kMostSeconds) + 0.5);
    if (whole < 90) return fmt::format("{} s left", whole);
    const std::int64_t minutes = (whole + 30) / 60;
    if (minutes < 90) return fmt::format("{} min left", minutes);
    return fmt::format("{} h {:02} min left", minutes / 60, minutes % 60);
}

std::string counted(std::int64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace slipstream::tools
