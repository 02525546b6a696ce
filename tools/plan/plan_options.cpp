#include "tools/plan/plan_options.h"

#include <charconv>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/offload_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

std::vector<std::size_t> budgets(const Settings& settings, int n_devices) {
    std::vector<std::size_t> sizes;
    const Setting* setting = settings.find("device-memory");
    if (setting == nullptr) return sizes;
    for (const std::string_view text : device_values(*setting, n_devices)) {
        // 'none' is allowed for this machine's CPU devices, which compute in place; a GPU of a profile has a fixed
        // memory.
        const bool is_unlimited = text == "none" && !settings.text("profile");
        sizes.push_back(is_unlimited ? std::numeric_limits<std::size_t>::max() : size_value(text, setting->where));
    }
    return sizes;
}

// Returns the rates of --link-gib-s in bytes per second; infinity for 'none' (not throttled). Empty if all are 'none'.
std::vector<double> links(const Settings& settings, int n_devices) {
    std::vector<double> found;
    const Setting* setting = settings.find("link-gib-s");
    if (setting == nullptr) return found;
    bool any = false;
    for (const std::string_view text : device_values(*setting, n_devices)) {
        const bool is_none = text == "none";
        found.push_back(is_none ? std::numeric_limits<double>::infinity() : link_value(text, setting->where));
        any = any || !is_none;
    }
    return any ? found : std::vector<double>();
}

std::optional<std::size_t> size(const Settings& settings, std::string_view name) {
    const Setting* setting = settings.find(name);
    if (setting == nullptr) return std::nullopt;
    return size_value(setting->values.back(), setting->where);
}

}  // namespace

PlacementSettings placement_settings(const Settings& settings, int n_devices) {
    PlacementSettings placement;
    placement.device_bytes = budgets(settings, n_devices);
    placement.host_bytes = size(settings, "host-memory");
    placement.ring_bytes = size(settings, "ring");
    placement.link_bytes_per_second = links(settings, n_devices);
    placement.expect_tokens = settings.integer("expect-tokens", {1, kMostExpectedTokens});
    placement.experts = experts_setting(settings);
    return placement;
}

int planned_devices(const Settings& settings) {
    const Setting* setting = settings.find("devices");
    if (setting == nullptr || setting->values.back() == "auto") return 1;
    int n = 0;
    for (const std::string_view device : split_list(setting->values.back())) {
        const bool is_card = device.starts_with("cuda:") && device.size() > 5 &&
                             device.find_first_not_of("0123456789", 5) == std::string_view::npos;
        if (device != "cpu" && !is_card)
            throw UsageError(fmt::format("{}: auto, cpu or cuda:N expected, found '{}'", setting->where, device));
        ++n;
    }
    if (n > 1 && setting->values.back().find("cuda") != std::string::npos)
        throw RequestError(
            fmt::format("{} {}: several devices of this machine are planned for where all are cpu ('generate -v' and "
                        "'bench' report the split of others); plan for one, or for a machine like it with --profile",
                        setting->where, setting->values.back()));
    return n;
}

std::vector<double> number_list(const Settings& settings, std::string_view name, Range<double> range) {
    std::vector<double> numbers;
    const Setting* setting = settings.find(name);
    if (setting == nullptr) return numbers;
    for (const std::string_view text : split_list(setting->values.back())) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers.emplace_back());
        // Written so that a NaN is refused, too.
        if (error != std::errc() || end != text.data() + text.size() ||
            !(numbers.back() >= range.lowest && numbers.back() <= range.highest))
            throw UsageError(
                fmt::format("{}: numbers {} expected, found '{}'", setting->where, limits_text(range), text));
    }
    return numbers;
}

}  // namespace slipstream::tools
