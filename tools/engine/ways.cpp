#include "tools/engine/ways.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "runtime/plan/split_plan.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

// Ways whose times differ by less than this factor count as equally fast.
constexpr double kSameTime = 1.01;
// Budgets of this many bytes or more stand for "no budget".
constexpr std::size_t kNoBudget = std::numeric_limits<std::size_t>::max() / 2;
// Least factor by which another way must be faster to be reported to the user.
constexpr double kMuchFaster = 1.3;

/// A way with its plan.
struct PlannedWay {
    Way way;
    SplitPlan plan;
};

bool computes_on(DeviceKind kind, const PlacementRequest& placement) {
    return std::ranges::any_of(placement.devices, [&](const PlannedDevice& device) { return device.kind == kind; });
}

bool host_holds(const WaysRequest& request, const PlacementRequest& placement, const SplitPlan& plan) {
    return is_within(host_needs(placement, plan), request.host);
}

// Returns all of the host's cores as one device without a budget.
PlannedDevice host_device(const WaysRequest& request) {
    const DeviceSpeed& first = request.placement.devices.front().speed;
    return {.kind = DeviceKind::Cpu,
            .speed = {.rates = request.host_rates,
                      .link_bytes_per_second = 1.0,  // nothing streams to it
                      .memory_bytes_per_second = first.memory_bytes_per_second,
                      .host_bytes_per_copied_byte = first.host_bytes_per_copied_byte}};
}

// Returns the options with which the CPU alone computes: "--devices cpu, without --device-memory, --ring".
std::string cpu_options(const WaysRequest& request) {
    const std::vector<PlannedDevice>& devices = request.placement.devices;
    std::string options;
    if (devices.size() > 1 || devices.front().kind != DeviceKind::Cpu) options = "--devices cpu";
    if (!request.offload_options.empty())
        options += fmt::format("{}without {}", options.empty() ? "" : ", ", request.offload_options);
    // Devices that share matrices (a tensor split) add in another order than one device does, so the CPU alone would
    // generate another text.
    if (devices.size() > 1 && request.placement.split == SplitKind::Tensor) options += " (which gives another text)";
    return options;
}

// Returns the plan in which the CPU computes all layers; no value if the host's memory cannot hold the model.
std::optional<PlannedWay> cpu_only(const WaysRequest& request) {
    PlacementRequest placement = request.placement;
    placement.devices = {host_device(request)};
    placement.shards.clear();
    placement.ring_bytes = 0;
    placement.pass_tokens = request.plan->pass_tokens();
    SplitPlan plan = SplitPlan(split_plan_request(placement)).with_counted(placement.counted);
    if (!host_holds(request, placement, plan)) return std::nullopt;
    return PlannedWay{{.kind = WayKind::CpuOnly, .options = cpu_options(request)}, std::move(plan)};
}

// Returns the options with which the CPU takes a part of the layers: "--devices cuda:0,cuda:1,cpu", or, if budgets were
// given, "--devices cpu,cpu --device-memory 27262976,none".
std::string shared_options(const WaysRequest& request) {
    std::string options = fmt::format("--devices {},cpu", fmt::join(request.device_names, ","));
    if (!request.names_budgets) return options;
    std::string budgets;
    for (const PlannedDevice& device : request.placement.devices)
        budgets +=
            device.budget_bytes >= kNoBudget ? "none," : fmt::format("{},", size_option_text(device.budget_bytes));
    return fmt::format("{} --device-memory {}none", options, budgets);
}

// Returns the plan in which the devices and the CPU share the layers, as a run with shared_options() splits them.
// Returns no value if matrices are split, if a CPU is beside a GPU already, or if the devices or the host cannot hold
// their parts.
std::optional<PlannedWay> shared_layers(const WaysRequest& request) {
    const PlacementRequest& asked = request.placement;
    if (asked.devices.size() > 1 && asked.split == SplitKind::Tensor) return std::nullopt;
    if (computes_on(DeviceKind::Cpu, asked) && computes_on(DeviceKind::Cuda, asked)) return std::nullopt;
    PlacementRequest placement = asked;
    placement.split = SplitKind::Layers;
    placement.shards.clear();
    placement.fixed_experts = false;  // fewer layers stream, whose experts the host may hold
    placement.devices.push_back(host_device(request));
    try {
        // A run splits the model for plain decoding (PlacedModel), whatever drafts.
        PlacementRequest plain = placement;
        plain.needs = generation_needs(1, placement.context_tokens, CheckPasses::No);
        plain.pass_tokens = request.split_pass_tokens;
        const std::vector<std::int64_t> parts = choose_parts(split_plan_request(plain), plain.devices.size());
        placement.shards = deal_parts(SplitKind::Layers, *placement.config, *placement.weights, parts);
        placement.pass_tokens = request.plan->pass_tokens();
        SplitPlan plan = plan_within(placement, request.host).plan;
        if (!host_holds(request, placement, plan)) return std::nullopt;
        return PlannedWay{{.kind = WayKind::Shared, .options = shared_options(request), .layers = parts},
                          std::move(plan)};
    } catch (const OutOfBudget&) {
        return std::nullopt;
    } catch (const Unsupported&) {  // fewer layers than devices
        return std::nullopt;
    }
}

// Returns the time by which a way is ranked: of ways that are equally fast (kSameTime), one that does not share layers
// with the CPU wins.
double ranked_seconds(WayKind kind, double seconds) {
    return kind == WayKind::Shared ? kSameTime * seconds : seconds;
}

// Returns the fastest way for passes of `n_tokens` tokens.
PlannedWay& fastest_way(std::vector<PlannedWay>& ways, std::int64_t n_tokens) {
    return *std::ranges::min_element(ways, {}, [&](const PlannedWay& each) {
        return ranked_seconds(each.way.kind, each.plan.pass(n_tokens).seconds);
    });
}

}  // namespace

std::string_view way_name(WayKind kind) {
    switch (kind) {
        case WayKind::Streaming:
            return "streaming";
        case WayKind::Shared:
            return "layers shared with the CPU";
        case WayKind::CpuOnly:
            return "CPU only";
    }
    return "";
}

std::vector<Way> compare_ways(const WaysRequest& request) {
    std::vector<PlannedWay> planned;
    planned.push_back({{.kind = WayKind::Streaming}, *request.plan});
    if (auto way = shared_layers(request)) planned.push_back(std::move(*way));
    if (auto way = cpu_only(request)) planned.push_back(std::move(*way));
    for (std::int64_t n = 1; n <= kMostPassTokens; n *= 2) {
        PlannedWay& fastest = fastest_way(planned, n);
        if (!fastest.way.from_tokens) fastest.way.from_tokens = n;
    }
    std::vector<Way> ways;
    for (PlannedWay& each : planned) {
        each.way.one_seconds = each.plan.pass(1).seconds;
        each.way.expected_seconds = each.plan.pass(request.plan->pass_tokens()).seconds;
        ways.push_back(std::move(each.way));
    }
    return ways;
}

std::optional<std::string> faster_way_note(std::span<const Way> ways, std::int64_t pass_tokens) {
    const auto best = std::ranges::min_element(
        ways, {}, [](const Way& way) { return ranked_seconds(way.kind, way.expected_seconds); });
    const double times = ways.front().expected_seconds / best->expected_seconds;
    if (times < kMuchFaster) return std::nullopt;
    return fmt::format("{} would be {:.1f}x as fast for passes of {}: {}", way_name(best->kind), times,
                       counted(pass_tokens, "token"), best->options);
}

}  // namespace slipstream::tools
