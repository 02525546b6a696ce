// Options of every command that computes: which model, where, with how many threads, for which context.
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

/// What --rates takes beside files.
inline constexpr std::string_view kMeasureRates = "measure";

[[nodiscard]] OptionSpec model_option();
[[nodiscard]] OptionSpec context_option();
[[nodiscard]] OptionSpec kv_type_option();
/// --devices and --threads.
[[nodiscard]] std::vector<OptionSpec> device_options();

/// -m resolved to a path; the bundled model where it is not given. UsageError where it is empty; else throws as
/// resolve_model() does.
[[nodiscard]] std::filesystem::path model_path(const Settings& settings);
/// The same, told under -v.
[[nodiscard]] std::filesystem::path choose_model(const CommandContext& context);

/// --ctx; nothing where it is not given.
[[nodiscard]] std::optional<std::int64_t> context_setting(const Settings& settings);
/// --kv-type; nothing means the model's own. UsageError for a type that is not served.
[[nodiscard]] std::optional<DType> kv_type_setting(const Settings& settings);
/// --devices, as choose_devices() takes it.
[[nodiscard]] std::vector<DeviceChoice> devices_setting(const Settings& settings);
/// The same for what runs on one device; RequestError where several are named.
[[nodiscard]] DeviceChoice device_setting(const Settings& settings);
/// --threads, else default_threads().
[[nodiscard]] int thread_setting(const Settings& settings);

/// --rates, else a file in the folder of --tables.
[[nodiscard]] RatesOptions rates_options(const Settings& settings);

/// What the settings say about computing, checked before anything is opened.
[[nodiscard]] ComputeOptions compute_options(const Settings& settings);

}  // namespace slipstream::tools
