// Options that say how much memory there is and how fast the link to it: what does not fit streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/model_shard.h"

namespace slipstream::tools {

struct OffloadOptions;
struct OptionSpec;
struct Setting;
class Settings;

/// --device-memory, --host-memory, --link-gib-s, --ring, --expect-tokens, --split, --shares, --rates.
[[nodiscard]] std::vector<OptionSpec> offload_option_specs();
/// Reads them for devices of those kinds, one or more. Throws UsageError if a value is malformed, a list has neither
/// one value nor one for each device, or an option cannot act: a ring or a link if all devices are CPUs without
/// --device-memory, shares on one device. Throws RequestError for a split that these devices do not serve.
[[nodiscard]] OffloadOptions offload_options(const Settings& settings, std::span<const DeviceKind> devices);

/// Bytes of "8G" = "8GB" = "8GiB", "1.5T", "300M", "64k", "4096"; nothing where it is malformed or does not fit.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);
/// The same for the value of an option: from one byte to 1024T. UsageError, which begins with `where` and says the
/// range; `also` is what the option takes besides: "'none'".
[[nodiscard]] std::size_t size_value(std::string_view text, std::string_view where, std::string_view also = {});

// GiB a second of a link. Below the least a pass takes minutes.
inline constexpr double kLeastLinkGib = 0.001;
inline constexpr double kMostLinkGib = 1e6;
/// Most tokens of a pass that a placement is planned for.
inline constexpr std::int64_t kMostExpectedTokens = std::int64_t{1} << 20;

/// Returns --split; no value if it was not given, which means layers. Throws UsageError.
[[nodiscard]] std::optional<SplitKind> split_setting(const Settings& settings);

/// The values of a list: one for each device, or one for all of them. UsageError where they are others in number.
[[nodiscard]] std::vector<std::string_view> device_values(const Setting& setting, std::size_t n_devices);
/// Bytes a second of a link, told in GiB; UsageError where that is no number, or out of range.
[[nodiscard]] double link_value(std::string_view text, std::string_view where);

/// --split and --shares.
struct ShareSettings {
    std::optional<SplitKind> split{};  // not given: layers
    std::string split_where{};
    std::vector<double> shares{};  // empty: planned
    std::string shares_where{};
};
/// Of so many devices. Throws UsageError.
[[nodiscard]] ShareSettings share_settings(const Settings& settings, std::size_t n_devices);

}  // namespace slipstream::tools
