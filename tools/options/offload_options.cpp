#include "tools/options/offload_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/budget.h"
#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMostSize = std::size_t{1024} << 40;
constexpr double kLeastShare = 0.001;
constexpr double kMostShare = 1000.0;

constexpr double kLeastLinkGib = 0.001;  // GiB/s: over a slower link, a pass would take minutes
constexpr double kMostLinkGib = 1e6;     // GiB/s
// Most tokens of a pass for which placement is planned.
constexpr std::int64_t kMostExpectedTokens = std::int64_t{1} << 20;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

std::optional<std::size_t> size_setting(const Settings& settings, std::string_view name) {
    const Setting* setting = settings.find(name);
    if (setting == nullptr) return std::nullopt;
    return size_value(setting->values.back(), setting->where);
}

std::optional<double> number(std::string_view text) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

// Returns whether a single value of --device-memory applies to `device`: to all GPUs, or to all CPU devices if there is
// no GPU.
bool gets_common_value(std::span<const DeviceKind> devices, std::size_t device) {
    return devices[device] == DeviceKind::Cuda || std::ranges::find(devices, DeviceKind::Cuda) == devices.end();
}

// Returns the value for `device` of a list with one value for all devices, or one for each.
template <typename Value>
const Value& value_of(const std::vector<Value>& values, std::size_t device) {
    return values.size() == 1 ? values.front() : values[device];
}

// Sets the memory budgets. Throws UsageError if a GPU is given 'none'.
void set_memory(const Settings& settings, const PlacementSettings& given, std::span<const DeviceKind> devices,
                OffloadOptions& options) {
    if (given.device_bytes.empty()) return;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        if (given.device_bytes.size() == 1 && !gets_common_value(devices, i)) continue;
        const std::size_t bytes = value_of(given.device_bytes, i);
        if (bytes != Budget::kUnlimited)
            options.devices[i].memory_bytes = bytes;
        else if (devices[i] == DeviceKind::Cuda)
            throw UsageError(fmt::format("{}: 'none' is for a CPU device, which computes in place; give a GPU a size",
                                         settings.find("device-memory")->where));
    }
}

// Sets the rates of the links. Throws UsageError if the command line gives one to a device to which nothing streams.
void set_links(const Settings& settings, const PlacementSettings& given, std::span<const DeviceKind> devices,
               OffloadOptions& options) {
    if (given.link_bytes_per_second.empty()) return;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        const double bytes_per_second = value_of(given.link_bytes_per_second, i);
        const bool has_link = devices[i] == DeviceKind::Cuda || options.devices[i].memory_bytes.has_value();
        if (std::isinf(bytes_per_second)) continue;
        if (has_link) {
            options.devices[i].link_bytes_per_second = bytes_per_second;
            continue;
        }
        if (given.link_bytes_per_second.size() == 1 && devices.size() > 1) continue;
        if (const Setting* setting = settings.on_command_line("link-gib-s"))
            throw UsageError(fmt::format(
                "{} has an effect only if something streams; give --device-memory, or remove it", setting->where));
    }
}

// Returns the values of a comma-separated list: one for each device, or one for all of them. Throws UsageError if there
// are other numbers of values.
std::vector<std::string_view> device_values(const Setting& setting, std::size_t n_devices) {
    std::vector<std::string_view> values = split_list(setting.values.back());
    if (values.size() > 1 && values.size() != n_devices)
        throw UsageError(fmt::format("{}: {} values for {} device{}; give one for each, or one for all", setting.where,
                                     values.size(), n_devices, n_devices == 1 ? "" : "s"));
    return values;
}

// Returns the bytes per second of a link speed given in GiB/s. Throws UsageError if the text is no number or is out of
// range.
double link_value(std::string_view text, std::string_view where) {
    const std::optional<double> gib = number(text);
    if (!gib || !(*gib >= kLeastLinkGib) || *gib > kMostLinkGib)
        throw UsageError(fmt::format("{}: GiB a second from {} to {} expected, found '{}'", where, kLeastLinkGib,
                                     kMostLinkGib, text));
    return *gib * kGib;
}

// Returns the values of --device-memory in bytes; Budget::kUnlimited for 'none', which a profile's GPUs cannot have,
// since their memory is fixed.
std::vector<std::size_t> memory_values(const Settings& settings, std::size_t n_devices) {
    std::vector<std::size_t> sizes;
    const Setting* setting = settings.find("device-memory");
    if (setting == nullptr) return sizes;
    const bool may_be_none = !settings.has("profile") || !settings.text("profile");
    for (const std::string_view text : device_values(*setting, n_devices))
        sizes.push_back(text == "none" && may_be_none ? Budget::kUnlimited
                                                      : size_value(text, setting->where, may_be_none ? "'none'" : ""));
    return sizes;
}

// Returns the values of --link-gib-s in bytes per second; infinity for 'none' (not throttled). Empty if all are 'none'.
std::vector<double> link_values(const Settings& settings, std::size_t n_devices) {
    std::vector<double> rates;
    const Setting* setting = settings.find("link-gib-s");
    if (setting == nullptr) return rates;
    for (const std::string_view text : device_values(*setting, n_devices))
        rates.push_back(text == "none" ? std::numeric_limits<double>::infinity() : link_value(text, setting->where));
    if (std::ranges::all_of(rates, [](double rate) { return std::isinf(rate); })) rates.clear();
    return rates;
}

}  // namespace

std::optional<std::size_t> parse_size(std::string_view text) {
    double number = 0.0;
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto [at, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(number) || number < 0.0) return std::nullopt;
    std::string_view unit(at, static_cast<std::size_t>(end - at));
    int shift = 0;
    if (!unit.empty()) {
        constexpr std::string_view kUnits = "KMGT";
        const auto letter = kUnits.find(static_cast<char>(unit[0] & ~0x20));
        if (letter != std::string_view::npos) {
            shift = 10 * (static_cast<int>(letter) + 1);
            unit.remove_prefix(1);
            if (unit.starts_with('i')) unit.remove_prefix(1);
        }
        if (unit == "B" || unit == "b") unit = {};
        if (!unit.empty()) return std::nullopt;
    }
    const double bytes = std::ldexp(number, shift);
    if (bytes >= 0x1p62) return std::nullopt;
    return static_cast<std::size_t>(bytes);
}

std::size_t size_value(std::string_view text, std::string_view where, std::string_view also) {
    const std::size_t bytes = parse_size(text).value_or(0);
    if (bytes == 0 || bytes > kMostSize)
        throw UsageError(fmt::format("{}: a size from 1 byte to 1024T, such as 300M or 8GiB{}{}, expected, found '{}'",
                                     where, also.empty() ? "" : ", or ", also, text));
    return bytes;
}

std::optional<ExpertMisses> experts_setting(const Settings& settings) {
    const Setting* setting = settings.find("experts");
    if (setting == nullptr) return std::nullopt;
    const std::string& value = setting->values.back();
    if (value == "auto") return std::nullopt;
    if (value == "copy") return ExpertMisses::Copy;
    if (value == "cpu") return ExpertMisses::Cpu;
    throw UsageError(fmt::format("{}: auto, copy or cpu expected, found '{}'", setting->where, value));
}

void check_experts_on_gpu(const Settings& settings) {
    if (experts_setting(settings) == ExpertMisses::Cpu)
        throw RequestError(
            fmt::format("{}: experts that the CPU computes have other bits than those of a GPU; use "
                        "copy, or --devices cpu",
                        settings.find("experts")->where));
}

std::optional<SplitKind> split_setting(const Settings& settings) {
    const Setting* setting = settings.find("split");
    if (setting == nullptr) return std::nullopt;
    const std::string& kind = setting->values.back();
    for (const SplitKind known : {SplitKind::Layers, SplitKind::Tensor})
        if (kind == split_name(known)) return known;
    throw UsageError(fmt::format("{}: layers or tensor expected, found '{}'", setting->where, kind));
}

ShareSettings share_settings(const Settings& settings, std::size_t n_devices) {
    if (n_devices == 1) {
        for (const std::string_view name : {"split", "shares"})
            if (const Setting* setting = settings.on_command_line(name))
                throw UsageError(
                    fmt::format("{} requires several devices; name them by --devices, or remove it", setting->where));
        return {};
    }
    ShareSettings chosen{.split = split_setting(settings)};
    if (chosen.split) chosen.split_where = settings.find("split")->where;
    const Setting* setting = settings.find("shares");
    if (setting == nullptr) return chosen;
    chosen.shares_where = setting->where;
    const std::vector<std::string_view> values = split_list(setting->values.back());
    if (values.size() != n_devices)
        throw UsageError(fmt::format("{}: {} for {} devices; give one for each", setting->where,
                                     counted(std::ssize(values), "value"), n_devices));
    for (const std::string_view value : values) {
        const std::optional<double> share = number(value);
        if (!share || !(*share >= kLeastShare && *share <= kMostShare))
            throw UsageError(fmt::format("{}: numbers from {} to {} expected, found '{}'", setting->where, kLeastShare,
                                         kMostShare, value));
        chosen.shares.push_back(*share);
    }
    return chosen;
}

std::vector<OptionSpec> offload_option_specs() {
    return {
        {"device-memory", "--device-memory", "SIZE[,SIZE]",
         "Memory budget of each device, '8G'; weights and KV beyond it stream from pinned memory of the host; 'none': "
         "a CPU device computes in place [free memory of a GPU less 1 GiB; none]"},
        {"host-memory", "--host-memory", "SIZE", "Most pinned memory for what streams [80 % of RAM]"},
        {"link-gib-s", "--link-gib-s", "X[,X]",
         "Let the link between host and device carry no more than X GiB/s, each way; 'none': as it is [none]"},
        {"experts", "--experts", "HOW",
         "What becomes of an expert that a pass needs and the device lacks: it is copied over the link, or computed on "
         "the cpu from host memory; auto: copy for a GPU, which supports nothing else, and cpu for a CPU device [auto]",
         OptionRole::Value, "auto, copy, cpu"},
        {"split", "--split", "KIND",
         "How several devices share the model: layers, computed in turn, or tensor, a part of every matrix, at the "
         "same time; each tensor split rounds differently, so its text may differ [layers]",
         OptionRole::Value, "layers, tensor"},
        {"shares", "--shares", "N,N", "What each device has of the layers, or of the kv heads, '2,1' [planned]"},
        {"ring", "--ring", "SIZE", "Memory of each device through which streamed weights and KV pass [planned]"},
        {"expect-tokens", "--expect-tokens", "N", "Tokens of a pass to plan placement for [planned]"},
        {"rates", "--rates", "FILE|measure",
         "Where the rates of this machine are kept, by which placement is planned; measure: measure them again [a file "
         "in the folder of --tables]",
         OptionRole::OutputFile}};
}

OptionSpec kept_memory_option(std::string_view help) {
    return {"kept-memory", "--kept-memory", "SIZE", help};
}

std::optional<std::size_t> kept_memory_setting(const Settings& settings) {
    const Setting* const setting = settings.find("kept-memory");
    if (setting == nullptr) return std::nullopt;
    const std::string& value = setting->values.back();
    return value == "0" ? 0 : size_value(value, setting->where, "0");
}

std::string streaming_options(const Settings& settings) {
    std::string names;
    for (const std::string_view name :
         {"device-memory", "host-memory", "link-gib-s", "ring", "expect-tokens", "experts", "split", "shares"})
        if (settings.find(name) != nullptr) names += fmt::format("{}--{}", names.empty() ? "" : ", ", name);
    return names;
}

PlacementSettings placement_settings(const Settings& settings, std::size_t n_devices) {
    return {.device_bytes = memory_values(settings, n_devices),
            .host_bytes = size_setting(settings, "host-memory"),
            .ring_bytes = size_setting(settings, "ring"),
            .link_bytes_per_second = link_values(settings, n_devices),
            .expect_tokens = settings.integer("expect-tokens", {1, kMostExpectedTokens}),
            .experts = experts_setting(settings)};
}

OffloadOptions offload_options(const Settings& settings, std::span<const DeviceKind> devices) {
    OffloadOptions options;
    options.devices.resize(devices.size());
    options.host_memory = host_memory().total_bytes / 5 * 4;
    if (!settings.has("device-memory")) return options;
    const PlacementSettings given = placement_settings(settings, devices.size());
    set_memory(settings, given, devices, options);
    set_links(settings, given, devices, options);
    options.host_memory = given.host_bytes.value_or(options.host_memory);
    options.ring = given.ring_bytes;
    options.expect_tokens = given.expect_tokens;
    options.experts = given.experts;
    if (const Setting* setting = settings.on_command_line("experts"); setting != nullptr && options.experts)
        options.experts_demanded = setting->where;
    ShareSettings shares = share_settings(settings, devices.size());
    options.split = shares.split;
    options.split_where = std::move(shares.split_where);
    options.shares = std::move(shares.shares);
    options.shares_where = std::move(shares.shares_where);
    options.streaming_options = streaming_options(settings);
    if (options.splits_matrices() && std::ranges::count(devices, devices.front()) != std::ssize(devices))
        throw RequestError(fmt::format(
            "{}: tensor is served over devices of one kind, cpu or cuda; --split layers serves both together",
            settings.find("split")->where));
    const auto in_place = [](const DeviceLimits& device) { return !device.memory_bytes; };
    const bool any_card = std::ranges::find(devices, DeviceKind::Cuda) != devices.end();
    if (any_card) check_experts_on_gpu(settings);
    if (!any_card && std::ranges::all_of(options.devices, in_place))
        for (const std::string_view name : {"link-gib-s", "ring", "expect-tokens", "experts", "host-memory"})
            if (const Setting* setting = settings.on_command_line(name))
                throw UsageError(fmt::format(
                    "{} has an effect only if something streams; give --device-memory, or remove it", setting->where));
    return options;
}

}  // namespace slipstream::tools
