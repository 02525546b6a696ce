#include "kernels/base/size_text.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace slipstream {

std::string size_text(std::size_t bytes) {
    constexpr std::array<std::string_view, 4> units{"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
    double size = static_cast<double>(bytes) / 1024.0;
    std::size_t unit = 0;
    while (size >= 999.95 && unit + 1 < units.size()) {
        size /= 1024.0;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", size, size < 99.95 ? 1 : 0, units[unit]);
}

std::string size_option_text(std::size_t bytes) {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    constexpr std::size_t kWholeMiB = 10 * 1024 * kMiB;  // 10 GiB: larger sizes are written in tenths of a GiB
    if (bytes < 1024) return fmt::format("{}", bytes);
    if (bytes < kMiB) return fmt::format("{}K", bytes / 1024 + (bytes % 1024 != 0 ? 1 : 0));
    if (bytes < kWholeMiB) return fmt::format("{}M", bytes / kMiB + (bytes % kMiB != 0 ? 1 : 0));
    const std::size_t tenths = (bytes / kMiB * 10 + 10) / 1024 + 1;
    return fmt::format("{}.{}G", tenths / 10, tenths % 10);
}

}  // namespace slipstream
