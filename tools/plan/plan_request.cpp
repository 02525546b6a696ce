#include "tools/plan/plan_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "kernels/workspace.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/model/weight_items.h"
#include "runtime/pass/forward.h"
#include "runtime/plan/model_plan.h"
#include "runtime/text/printable.h"
#include "tools/base/usage_error.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/machine/compute_device.h"
#include "tools/machine/host.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/settings.h"
#include "tools/plan/plan_options.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

constexpr double kHostShare = 0.8;
constexpr double kMostTokensPerPass = 4096.0;

// Throws UsageError if option `name`, which has no effect here, was given on the command line. In a configuration file
// it is allowed, since other commands use it.
void refuse_beside(const Settings& settings, std::string_view name, std::string_view reason) {
    if (const Setting* setting = settings.on_command_line(name))
        throw UsageError(fmt::format("{}: {}", setting->where, reason));
}

/// Returns the names of the matrix types, the type with the most bytes first.
std::string types_text(const ModelWeights& weights) {
    std::map<DType, std::size_t> bytes;
    for_each_pass_matrix(weights, [&](const ConstTensorView& view) {
        bytes[view.dtype] += view.shape[0] * row_bytes(view.dtype, view.shape[1]);
    });
    std::vector<std::pair<std::size_t, std::string_view>> types;
    for (const auto& [type, n] : bytes) types.emplace_back(n, dtype_name(type));
    std::sort(types.rbegin(), types.rend());
    std::vector<std::string_view> names;
    for (const auto& entry : types) names.push_back(entry.second);
    return fmt::format("{}", fmt::join(names, ", "));
}

PlannedModel opened_model(const CommandContext& context) {
    PlannedModel model;
    model.files = ModelFiles::open(choose_model(context));
    model.config = model.files->config();
    model.weights = model.files->weights();
    model.name =
        model.config.name.empty() ? model.files->paths().front().filename().string() : printable(model.config.name);
    model.types = types_text(model.weights);
    return model;
}

PlannedModel shape_of(const Settings& settings) {
    const std::string name = settings.text("shape").value();
    const auto config = find_shape(name);
    if (!config)
        throw UsageError(fmt::format("{}: unknown shape '{}'; known shapes: {}", settings.find("shape")->where, name,
                                     fmt::join(shape_names(), ", ")));
    const std::string quant = settings.text("quant").value_or("F16");
    const auto quantisation = find_quantisation(quant);
    if (!quantisation)
        throw UsageError(fmt::format("{}: unknown quantisation '{}'; known: {}", settings.find("quant")->where, quant,
                                     fmt::join(quantisation_names(), ", ")));
    return planned_shape(config->name, *config, *quantisation);
}

PlannedModel chosen_model(const CommandContext& context) {
    const Settings& settings = context.settings;
    constexpr std::array<std::string_view, 2> kEither{"shape", "model"};
    if (settings.on_command_line("shape") != nullptr && settings.on_command_line("model") != nullptr)
        throw UsageError("--shape and -m both name a model; give one of them");
    if (settings.strongest_of(kEither) == "shape") return shape_of(settings);
    refuse_beside(settings, "quant", "a file has its own types; --quant requires --shape");
    return opened_model(context);
}

std::string_view thread_note() {
    return "the threads of this machine do not apply to a profile; leave it out, or leave --profile out";
}

/// Returns the rates of the host's cores when they compute beside a GPU.
PassRates host_rates(CommandContext& context, const PlannedModel& model, DType kv_dtype) {
    return machine_rates({.config = &model.config,
                          .weights = &model.weights,
                          .kv_dtype = kv_dtype,
                          .n_threads = thread_setting(context.settings)},
                         rates_options(context.settings), console_callbacks(context))
        .rates;
}

/// Measures this machine. Returns `n_devices` CPU devices, each with the threads that it computes with, or one GPU with
/// its free memory.
Hardware this_machine(CommandContext& context, const PlanRequest& request, const DeviceChoice& choice, int n_devices) {
    const PlannedModel& model = request.model;
    const int n_all = thread_setting(context.settings);
    const int n_threads = device_threads(n_all, static_cast<std::size_t>(n_devices), request.split);
    check_kernels(model.weights, choice.kind());
    const std::unique_ptr<Device> device = make_compute_device(choice, {.n_threads = n_threads});
    const bool is_card = choice.card.has_value();
    // As in a placed model, CPU devices that share matrices compute at the same time, and share cores and memory
    // bandwidth.
    const bool shares_matrices = request.split == SplitKind::Tensor && n_devices > 1 && !is_card;
    const int at_once = shares_matrices ? n_devices : 1;
    const MachineRates all = machine_rates({.config = &model.config,
                                            .weights = &model.weights,
                                            .kv_dtype = request.kv_dtype,
                                            .n_threads = n_threads * at_once,
                                            .card = is_card ? device.get() : nullptr},
                                           rates_options(context.settings), console_callbacks(context));
    const MachineRates measured = all.shared_by(static_cast<std::size_t>(at_once));
    const HostMemory memory = host_memory();
    Hardware hardware{measured.speed()};
    hardware.name = "this machine";
    hardware.device = choice.name();
    hardware.link = is_card ? "measured" : "memory, measured";
    hardware.n_devices = n_devices;
    hardware.device_bytes = device->budget().limit_bytes();
    hardware.workspace_bytes = workspace_bytes(
        *device, Forward::workspace_shapes(model.config, request.kv_dtype, forward_limits_for(kMostPassTokens)));
    hardware.host_bytes = memory.available_bytes;
    hardware.host_budget_bytes = std::min(
        memory.available_bytes, static_cast<std::size_t>(kHostShare * static_cast<double>(memory.total_bytes)));
    hardware.devices_in_host_memory = !is_card;
    hardware.rates_source = measured.origin == RatesOrigin::Kept ? "kept" : "measured";
    hardware.rates_spread = measured.spread;
    hardware.host_rates =
        !is_card && n_threads * at_once == n_all ? all.rates : host_rates(context, model, request.kv_dtype);
    return hardware;
}

std::string profile_names() {
    std::string names;
    for (const HardwareProfile& profile : hardware_profiles())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
    return names;
}

Hardware chosen_hardware(CommandContext& context, PlanRequest& request) {
    const Settings& settings = context.settings;
    const auto name = settings.text("profile");
    if (!name) {
        const int n_devices = planned_devices(settings);
        return this_machine(context, request, n_devices == 1 ? device_setting(settings) : DeviceChoice{}, n_devices);
    }
    refuse_beside(settings, "devices", "a profile has its own devices; leave it out, or leave --profile out");
    refuse_beside(settings, "threads", thread_note());
    refuse_beside(settings, "rates", "a profile has its own rates; leave it out, or leave --profile out");
    request.profile = find_profile(*name);
    if (!request.profile)
        throw UsageError(fmt::format("{}: unknown profile '{}'; known profiles: {}", settings.find("profile")->where,
                                     *name, profile_names()));
    check_kernels(request.model.weights, DeviceKind::Cuda);
    return profile_hardware(*request.profile, request.model.config, request.kv_dtype, request.split);
}

}  // namespace

PlannedModel planned_shape(std::string_view name, const ModelConfig& config, Quantisation quantisation) {
    PlannedModel model{.name = std::string(name),
                       .types = std::string(quantisation_name(quantisation)),
                       .config = config,
                       .weights = shape_weights(config, quantisation),
                       .files = nullptr};
    const DType type = model.weights.lm_head.dtype;
    model.config.kv_dtype = is_quantized(type) ? DType::F16 : type;
    return model;
}

std::vector<OptionSpec> plan_options() {
    std::vector<OptionSpec> options{
        model_option(),
        {"shape", "--shape", "NAME", "Plan for a model of that shape instead, e.g. llama-70b", OptionRole::Value,
         fmt::format("{}", fmt::join(shape_names(), ", "))},
        {"quant", "--quant", "TYPE", "What the shape is written in: F16, Q8_0, Q4_K_M, IQ4_NL, MXFP4, ... [F16]",
         OptionRole::Value, fmt::format("{}", fmt::join(quantisation_names(), ", "))},
        {"profile", "--profile", "NAME",
         "Plan for that machine: 2x4090, 1x4090, 2x3090, 5090, laptop-8gb, ... [this one]", OptionRole::Value,
         profile_names()},
        context_option(),
        kv_type_option()};
    for (const OptionSpec& option : device_options()) options.push_back(option);
    for (const OptionSpec& option : offload_option_specs()) options.push_back(option);
    options.push_back(kept_memory_option("Plan for 'serve' with this option: host memory for the KV of earlier texts"));
    options.push_back({"assume", "--assume", "LIST",
                       "Assumed values, to predict tokens per second: "
                       "acceptance=.95,hidden=0,draft=SECONDS,view=TOKENS (--view-type); of a mixture hits=.85, the "
                       "share of chosen experts that slots hold [counted in earlier texts, or a prior]"});
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel)) options.push_back(option);
    options.push_back({"tokens-per-pass", "--tokens-per-pass", "LIST",
                       "Tokens that a pass commits, for which tokens per second are predicted [1,2,4,8,...]"});
    options.push_back({"json", "--json", "", "Print JSON"});
    return options;
}

PlanRequest plan_request(CommandContext& context) {
    const Settings& settings = context.settings;
    PlanRequest request;
    request.context_tokens = context_setting(settings);
    request.tokens_per_pass = number_list(settings, "tokens-per-pass", {1.0, kMostTokensPerPass});
    const auto kv_dtype = kv_type_setting(settings);
    // Validate the options before the model is opened and the machine is measured.
    const int n_devices = settings.text("profile") ? 0 : planned_devices(settings);
    if (n_devices > 0) {
        static_cast<void>(placement_settings(settings, n_devices));
        static_cast<void>(share_settings(settings, n_devices));
    }
    static_cast<void>(draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto"));
    const AssumedValues assumed = assumed_setting(settings);
    request.assumed = assumed.drafter;
    request.assumed_hits = assumed.hits;
    request.kept_bytes = kept_memory_setting(settings).value_or(0);
    request.model = chosen_model(context);
    request.kv_dtype = kv_dtype.value_or(request.model.config.kv_dtype);
    request.split = split_setting(settings).value_or(SplitKind::Layers);
    request.hardware = chosen_hardware(context, request);

    const PlacementSettings placement = placement_settings(settings, request.hardware.n_devices);
    Hardware& hardware = request.hardware;
    request.shares = share_settings(settings, hardware.n_devices).shares;
    if (!placement.device_bytes.empty()) {
        hardware.device_bytes = *std::min_element(placement.device_bytes.begin(), placement.device_bytes.end());
        if (placement.device_bytes.size() > 1) hardware.budgets = placement.device_bytes;
    }
    if (placement.host_bytes) {
        hardware.host_budget_bytes = *placement.host_bytes;
        if (request.profile) hardware.host_bytes = std::max(hardware.host_bytes, *placement.host_bytes);
    }
    if (!placement.link_bytes_per_second.empty()) {
        // For a profile, --link-gib-s replaces the rate of the link. On this machine it throttles: copies cannot be
        // faster than host memory allows.
        std::vector<double> links = placement.link_bytes_per_second;
        for (double& link : links)
            if (!request.profile || std::isinf(link)) link = std::min(link, hardware.link_bytes_per_second);
        hardware.link_bytes_per_second = *std::min_element(links.begin(), links.end());
        if (links.size() > 1) hardware.links = links;
        hardware.link = request.profile ? "as given" : "throttled";
        request.link_bytes_per_second = hardware.link_bytes_per_second;
    }
    request.experts = placement.experts;
    if (!hardware.devices_in_host_memory) check_experts_on_gpu(settings);
    if (const Setting* setting = settings.on_command_line("experts");
        setting != nullptr && request.experts && !request.model.config.has_experts())
        throw RequestError(fmt::format("{}: {} has no experts; leave it out", setting->where, request.model.name));
    if (const auto folder = tables_folder(settings);
        folder && request.model.files && request.model.config.has_experts())
        request.counted = counted_experts(KeptExpertCounts(*folder, *request.model.files, [&](std::string_view line) {
                                              context.console.note(line);
                                          }).read());
    // Assumed hits stand for those of a prior whose misses are multiplied.
    if (request.assumed_hits)
        for (CountedExperts& layer : request.counted) layer.hits.clear();
    request.pass_tokens = placement.expect_tokens;
    request.ring_bytes = placement.ring_bytes;
    if (!request.profile) request.offload_options = streaming_options(settings);
    return request;
}

}  // namespace slipstream::tools
