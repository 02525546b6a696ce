#include "tools/options/offload_options.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "tools/machine/host.h"
#include "tools/options/settings.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

constexpr double kMostLinkGib = 1e6;
constexpr double kLeastLinkGib = 0.001;  // below, a pass takes minutes and an interrupt waits for it

// One value: several are for several devices, which this version does not serve.
std::optional<std::string_view> single(const Setting* setting) {
    if (setting == nullptr) return std::nullopt;
    const std::string_view value = setting->values.back();
    if (value.find(',') != std::string_view::npos)
        throw UsageError(fmt::format("{}: one value expected, found '{}'; several devices are not served yet",
                                     setting->where, value));
    return value;
}

std::optional<std::size_t> size_setting(const Settings& settings, std::string_view name) {
    const Setting* setting = settings.find(name);
    const auto value = single(setting);
    if (!value) return std::nullopt;
    const auto bytes = parse_size(*value);
    if (!bytes || *bytes == 0)
        throw UsageError(fmt::format("{}: a size such as 300M or 8GiB expected, found '{}'", setting->where, *value));
    return bytes;
}

double link_setting(const Settings& settings) {
    constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
    const Setting* setting = settings.find("link-gib-s");
    const auto value = single(setting);
    if (!value) return 0.0;
    double gib = 0.0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), gib);
    if (error != std::errc() || end != value->data() + value->size() || !(gib >= kLeastLinkGib) || gib > kMostLinkGib)
        throw UsageError(fmt::format("{}: GiB a second from {} to {} expected, found '{}'", setting->where,
                                     kLeastLinkGib, kMostLinkGib, *value));
    return gib * kGib;
}

}  // namespace

std::optional<std::size_t> parse_size(std::string_view text) {
    double number = 0.0;
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto [at, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(number) || number < 0.0) return std::nullopt;
    std::string_view unit(at, static_cast<std::size_t>(end - at));
    int shift = 0;
    if (!unit.empty()) {
        constexpr std::string_view kUnits = "KMGT";
        const auto letter = kUnits.find(static_cast<char>(unit[0] & ~0x20));
        if (letter != std::string_view::npos) {
            shift = 10 * (static_cast<int>(letter) + 1);
            unit.remove_prefix(1);
            if (unit.starts_with('i')) unit.remove_prefix(1);
        }
        if (unit == "B" || unit == "b") unit = {};
        if (!unit.empty()) return std::nullopt;
    }
    const double bytes = std::ldexp(number, shift);
    if (bytes >= 0x1p62) return std::nullopt;
    return static_cast<std::size_t>(bytes);
}

std::vector<OptionSpec> offload_option_specs() {
    return {{"device-memory", "--device-memory", "SIZE",
             "Memory of the device, '8G'; weights and KV beyond it are streamed from the host's [a card's free memory "
             "less 1 GiB; no limit on a CPU]"},
            {"host-memory", "--host-memory", "SIZE", "Most host memory for what streams [80 % of RAM]"},
            {"link-gib-s", "--link-gib-s", "X",
             "Let the link between host and device carry no more than X GiB/s, each way [as it is]"},
            {"ring", "--ring", "SIZE", "Device memory that streamed blocks pass through [planned]"},
            {"expect-tokens", "--expect-tokens", "N", "Tokens of a pass to plan placement for [planned]"}};
}

OffloadOptions offload_options(const Settings& settings, DeviceKind device) {
    OffloadOptions options;
    options.device_memory = size_setting(settings, "device-memory");
    options.host_memory = size_setting(settings, "host-memory").value_or(host_memory().total_bytes / 5 * 4);
    options.ring = size_setting(settings, "ring");
    options.link_bytes_per_second = link_setting(settings);
    options.expect_tokens = settings.integer("expect-tokens", {1, 1 << 20});
    if (!options.device_memory && device == DeviceKind::Cpu)
        for (const std::string_view name : {"link-gib-s", "ring", "expect-tokens", "host-memory"})
            if (const Setting* setting = settings.on_command_line(name))
                throw UsageError(fmt::format("{} acts where something streams; give --device-memory, or leave it out",
                                             setting->where));
    return options;
}

}  // namespace slipstream::tools
