// The placement options (options/offload_options.h) as `plan` reads them: the devices may be those of a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/experts/miss_rules.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Values of --device-memory, --host-memory, --link-gib-s, --ring, --expect-tokens and --experts
/// (offload_option_specs()).
struct PlacementSettings {
    std::vector<std::size_t> device_bytes;      // [1] for all devices, or [n_devices]; empty: not given
    std::optional<std::size_t> host_bytes;      // most host memory for what streams
    std::vector<double> link_bytes_per_second;  // [1] or [n_devices]; infinity: not throttled; empty: not given
    std::optional<std::size_t> ring_bytes;
    std::optional<std::int64_t> expect_tokens;
    std::optional<ExpertMisses> experts{};  // as OffloadOptions::experts
};
/// Reads the placement options. Throws UsageError if a value is malformed or if a list has neither one value nor one
/// for each of the `n_devices` devices.
[[nodiscard]] PlacementSettings placement_settings(const Settings& settings, int n_devices);

/// Returns the number of devices that --devices names: 1 for "auto", "cpu", "cuda:0" or no option, 2 for "cpu,cpu".
/// Throws UsageError if the option is malformed, RequestError if it names a GPU together with other devices.
[[nodiscard]] int planned_devices(const Settings& settings);

/// Returns the numbers of a comma-separated list option, empty if the option is not given. Throws UsageError if an item
/// is no number or outside `range`.
[[nodiscard]] std::vector<double> number_list(const Settings& settings, std::string_view name, Range<double> range);

}  // namespace slipstream::tools
