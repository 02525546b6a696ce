#include "tools/options/compute_options.h"

#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;

}  // namespace

OptionSpec model_option() {
    return {"model", "-m,--model", "PATH",
            "Model: directory, GGUF file, or a name that 'models' lists [the bundled one]"};
}

OptionSpec context_option() {
    return {"ctx", "-c,--ctx,--ctx-size", "N",
            "Context length in tokens, 32K for 32768; rope is fixed by it [the model's, or what fits]"};
}

OptionSpec kv_type_option() {
    return {"kv-type",
            "--kv-type",
            "TYPE",
            "KV cache type: auto, bf16, f16, f32; q8 changes the model [auto: the model's; f16 if quantised]",
            OptionRole::Value,
            "auto, bf16, f16, f32, q8"};
}

std::vector<OptionSpec> device_options() {
    return {{"devices", "--devices", "LIST",
             "Devices that compute: auto, cpu, cuda:0, or several: cpu,cpu; cuda:0,cpu [auto: a GPU if there is one]",
             OptionRole::Value, "auto, cpu, cuda:0"},
            {"threads", "-t,--threads", "N", "CPU threads [physical cores, or what the control group allows]"}};
}

std::filesystem::path model_path(const Settings& settings) {
    const auto model = settings.path("model");
    std::filesystem::path bundled = bundled_model(program_folder());
    if (model) return resolve_model(*model, [&] { return find_models(settings.environment(), bundled); });
    if (bundled.empty())
        throw RequestError(
            fmt::format("no -m was given, and the bundled model is not where it belongs beside {}; name a model",
                        program_folder().string()));
    return bundled;
}

std::filesystem::path choose_model(const CommandContext& context) {
    std::filesystem::path path = model_path(context.settings);
    context.console.detail(context.settings.describe("model", path.string(), "the bundled model"));
    return path;
}

std::optional<std::int64_t> context_setting(const Settings& settings) {
    return settings.tokens("ctx", {1, kMaxContext});
}

std::optional<DType> kv_type_setting(const Settings& settings) {
    const Setting* setting = settings.find("kv-type");
    if (setting == nullptr || setting->values.back() == "auto") return std::nullopt;
    const std::string& type = setting->values.back();
    if (const auto known = kv_type_of(type == "q8_0" ? "q8" : type)) return known;
    throw UsageError(fmt::format("{}: auto, bf16, f16, f32 or q8 expected, found '{}'", setting->where, type));
}

int thread_setting(const Settings& settings) {
    return static_cast<int>(settings.integer("threads", {1, 1024}).value_or(default_threads()));
}

std::vector<DeviceChoice> devices_setting(const Settings& settings) {
    const Setting* setting = settings.find("devices");
    return setting == nullptr ? choose_devices() : choose_devices(setting->values.back(), setting->where);
}

DeviceChoice device_setting(const Settings& settings) {
    const std::vector<DeviceChoice> devices = devices_setting(settings);
    if (devices.size() > 1)
        throw RequestError(fmt::format("{}: this runs on one device; name one", settings.find("devices")->where));
    return devices.front();
}

RatesOptions rates_options(const Settings& settings) {
    RatesOptions rates;
    const auto given = settings.has("rates") ? settings.path("rates") : std::nullopt;
    rates.measure = given == kMeasureRates;
    if (given && !rates.measure) {
        rates.file = *given;
    } else if (const auto folder = tables_folder(settings)) {
        rates.file = *folder / kRatesFile;
    }
    return rates;
}

ComputeOptions compute_options(const Settings& settings) {
    ComputeOptions options{.context_tokens = context_setting(settings),
                           .kv_dtype = kv_type_setting(settings),
                           .n_threads = thread_setting(settings),
                           .devices = devices_setting(settings),
                           .offload = {}};
    std::vector<DeviceKind> kinds;
    for (const DeviceChoice& device : options.devices) kinds.push_back(device.kind());
    options.offload = offload_options(settings, kinds);
    options.tables_folder = tables_folder(settings);
    options.rates = rates_options(settings);
    return options;
}

}  // namespace slipstream::tools
