// Options of memory budgets, of the speed of links, and of the split over devices. What does not fit into a device's
// budget streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "runtime/experts/miss_rules.h"
#include "runtime/model/model_shard.h"

namespace slipstream::tools {

struct OffloadOptions;
struct OptionSpec;
class Settings;

/// Declares --device-memory, --host-memory, --link-gib-s, --ring, --expect-tokens, --experts, --split, --shares and
/// --rates.
[[nodiscard]] std::vector<OptionSpec> offload_option_specs();
/// Values of --device-memory, --host-memory, --ring, --link-gib-s, --expect-tokens and --experts, whatever the devices
/// are: those of this machine (offload_options()), or of a profile, as `plan` has them.
struct PlacementSettings {
    std::vector<std::size_t>
        device_bytes;  // [1] for all devices, or [n_devices]; Budget::kUnlimited: none; empty: not given
    std::optional<std::size_t> host_bytes;  // most host memory for what streams
    std::optional<std::size_t> ring_bytes;
    std::vector<double> link_bytes_per_second;  // [1] or [n_devices]; infinity: not throttled; empty: not given
    std::optional<std::int64_t> expect_tokens;
    std::optional<ExpertMisses> experts{};  // as OffloadOptions::experts
};
/// Reads the placement options. Throws UsageError if a value is malformed or if a list has neither one value nor one
/// for each of the `n_devices` devices.
[[nodiscard]] PlacementSettings placement_settings(const Settings& settings, std::size_t n_devices);

/// Returns the options for `devices` (at least one), which are of these kinds. Throws UsageError if a value is
/// malformed, if a list has neither one value nor one per device, or if an option on the command line has no effect:
/// link, ring, expected tokens, experts or host memory if nothing streams (no GPU, and no CPU device with
/// --device-memory), split or shares with one device. Throws RequestError if the devices do not support the split:
/// tensor requires devices of one kind, experts on the CPU require that there is no GPU. A command without these
/// options has the defaults.
[[nodiscard]] OffloadOptions offload_options(const Settings& settings, std::span<const DeviceKind> devices);

/// Declares --kept-memory, the host memory for the KV of earlier texts of a server. `help` is kept as a view.
[[nodiscard]] OptionSpec kept_memory_option(std::string_view help);
/// Returns --kept-memory in bytes; no value if it is not given. Throws UsageError.
[[nodiscard]] std::optional<std::size_t> kept_memory_setting(const Settings& settings);

/// Returns the given options that have no effect on one CPU without a budget, for messages: "--device-memory, --ring".
[[nodiscard]] std::string streaming_options(const Settings& settings);

/// Returns the bytes of "8G" = "8GB" = "8GiB", "1.5T", "300M", "64k" or "4096", rounded down; nothing if the text is
/// malformed or the size is 2^62 bytes or more.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);
/// Returns the bytes of an option's value, 1 byte to 1024T. Throws UsageError, which begins with `where` and names the
/// range; `also` is what the option accepts besides sizes, for the message: "'none'".
[[nodiscard]] std::size_t size_value(std::string_view text, std::string_view where, std::string_view also = {});

/// Returns --experts; nothing if it is `auto` or not given. Throws UsageError.
[[nodiscard]] std::optional<ExpertMisses> experts_setting(const Settings& settings);
/// Throws RequestError if --experts is `cpu`, for a run in which a GPU computes.
void check_experts_on_gpu(const Settings& settings);

/// Returns --split; nothing if it is not given, which means layers. Throws UsageError.
[[nodiscard]] std::optional<SplitKind> split_setting(const Settings& settings);

/// The values of --split and --shares.
struct ShareSettings {
    std::optional<SplitKind> split{};  // not given: layers
    std::string split_where{};         // option or variable that gave `split`, for messages
    std::vector<double> shares{};      // [devices]: proportions; empty: planned
    std::string shares_where{};        // option or variable that gave `shares`, for messages
};
/// Returns --split and --shares for `n_devices` devices. Throws UsageError if a value is malformed, if there is not one
/// share for each device, or if there is only one device and the command line has one of these options.
[[nodiscard]] ShareSettings share_settings(const Settings& settings, std::size_t n_devices);

}  // namespace slipstream::tools
