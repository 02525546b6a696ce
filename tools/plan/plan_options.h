// Options that `plan` reads itself: the number of devices, and lists of numbers. Those of placement are in
// options/offload_options.h.
#pragma once

#include <string_view>
#include <vector>

#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Returns the number of devices that --devices names: 1 for "auto", "cpu", "cuda:0" or no option, 2 for "cpu,cpu".
/// Throws UsageError if the option is malformed, RequestError if it names a GPU together with other devices.
[[nodiscard]] int planned_devices(const Settings& settings);

/// Returns the numbers of a comma-separated list option, empty if the option is not given. Throws UsageError if an item
/// is no number or outside `range`.
[[nodiscard]] std::vector<double> number_list(const Settings& settings, std::string_view name, Range<double> range);

}  // namespace slipstream::tools
