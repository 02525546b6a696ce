// What `plan` reads of the options about placement (options/offload_options.h): the devices may be those of a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// --device-memory, --host-memory, --link-gib-s, --ring, --expect-tokens, as offload_option_specs() lists them.
struct PlacementSettings {
    std::vector<std::size_t> device_bytes;      // empty: not given; one for all devices, or one each
    std::optional<std::size_t> host_bytes;      // most that what streams may take of host memory
    std::vector<double> link_bytes_per_second;  // as device_bytes; infinite: as it is
    std::optional<std::size_t> ring_bytes;
    std::optional<std::int64_t> expect_tokens;
};
/// UsageError for what is malformed, and for lists that are neither one value nor `n_devices`.
[[nodiscard]] PlacementSettings placement_settings(const Settings& settings, int n_devices);

/// How many devices --devices names: 1 for auto, cpu and cuda:0, 2 for "cpu,cpu". UsageError where it is malformed,
/// RequestError where it names a card beside others.
[[nodiscard]] int planned_devices(const Settings& settings);

/// Numbers of a comma-separated list, each in the range; empty where the option is not given. UsageError.
[[nodiscard]] std::vector<double> number_list(const Settings& settings, std::string_view name, Range<double> range);

}  // namespace slipstream::tools
