#include "tools/plan/plan_options.h"

#include <charconv>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

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
