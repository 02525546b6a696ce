// Options of the commands that compute: model, devices, threads, context and KV type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream::tools {

struct CommandContext;
struct ComputeOptions;
struct DeviceChoice;
struct OptionSpec;
struct RatesOptions;
class Settings;

/// Value of --rates, in place of a file, that makes the run measure the rates again.
inline constexpr std::string_view kMeasureRates = "measure";

[[nodiscard]] OptionSpec model_option();
[[nodiscard]] OptionSpec context_option();
[[nodiscard]] OptionSpec kv_type_option();
/// Declares --devices and --threads.
[[nodiscard]] std::vector<OptionSpec> device_options();

/// Returns the path of the model that -m names, or of the bundled model if -m is not given. Throws UsageError if the
/// name is empty, RequestError if neither -m nor a bundled model is there, and what resolve_model() throws.
[[nodiscard]] std::filesystem::path model_path(const Settings& settings);
/// Returns model_path() and reports it as a detail (-v).
[[nodiscard]] std::filesystem::path choose_model(const CommandContext& context);

/// Returns --ctx in tokens; nothing if it is not given.
[[nodiscard]] std::optional<std::int64_t> context_setting(const Settings& settings);
/// Returns --kv-type; nothing if it is not given or is `auto`: the model decides. Throws UsageError if the type is
/// unknown or not supported.
[[nodiscard]] std::optional<DType> kv_type_setting(const Settings& settings);
/// Returns the devices of --devices (`auto` if it is not given). Throws what choose_devices() throws.
[[nodiscard]] std::vector<DeviceChoice> devices_setting(const Settings& settings);
/// Returns the device of --devices, for work that runs on one device. Throws RequestError if several are named.
[[nodiscard]] DeviceChoice device_setting(const Settings& settings);
/// Returns --threads, or default_threads() if it is not given.
[[nodiscard]] int thread_setting(const Settings& settings);

/// Returns the options of --rates. Rates are kept in the given file, or else in a file in the folder of --tables; they
/// are not kept if there is neither.
[[nodiscard]] RatesOptions rates_options(const Settings& settings);

/// Returns --ctx, --kv-type, --threads, --devices and --rates, and the options of offload_options.h. Throws UsageError
/// and RequestError.
/// Needs no model, so that mistakes are found before one is opened.
[[nodiscard]] ComputeOptions compute_options(const Settings& settings);

}  // namespace slipstream::tools
