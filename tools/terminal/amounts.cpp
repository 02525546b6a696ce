#include "tools/terminal/amounts.h"

#include <algorithm>
#include <array>

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

std::string size_text(std::size_t bytes) {
    constexpr std::array<std::string_view, 4> units{"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return counted(static_cast<std::int64_t>(bytes), "byte");
    double size = static_cast<double>(bytes) / 1024.0;
    std::size_t unit = 0;
    while (size >= 999.95 && unit + 1 < units.size()) {
        size /= 1024.0;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", size, size < 99.95 ? 1 : 0, units[unit]);
}

std::string counted(std::int64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace slipstream::tools
