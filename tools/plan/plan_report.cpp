#include "tools/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "runtime/plan/split_plan.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"
#include "tools/engine/engine.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

constexpr double kWorthTelling = 1.01;
constexpr std::size_t kMoreMemory = std::size_t{8} << 30;

// With room for passes of `nodes` tokens, where it is not known how many nodes those have that will run.
RunNeeds needs_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes) {
    RunNeeds needs = generation_needs(request.run ? request.run->budget : nodes, context_tokens, CheckPasses::No);
    if (request.run) needs.view = request.run->view;
    if (!needs.view && request.assumed) needs.view = request.assumed->view(request.run ? request.run->budget : nodes);
    return needs;
}

PlacementRequest placement_of(const PlanRequest& request, std::int64_t context_tokens, const RunNeeds& needs,
                              std::optional<std::int64_t> pass_tokens) {
    const Hardware& hardware = request.hardware;
    PlacementRequest placement{.config = &request.model.config,
                               .weights = &request.model.weights,
                               .kv_dtype = request.kv_dtype,
                               .context_tokens = context_tokens,
                               .needs = needs,
                               .devices = {},
                               .split = request.split,
                               .ring_bytes = request.ring_bytes,
                               .pass_tokens = pass_tokens};
    for (std::size_t i = 0; i < static_cast<std::size_t>(hardware.n_devices); ++i)
        placement.devices.push_back(
            {.kind = hardware.devices_in_host_memory ? DeviceKind::Cpu : DeviceKind::Cuda,
             .budget_bytes = hardware.budget_of(i),
             .taken = request.run ? request.run->taken[i] : TakenMemory{.workspace_bytes = hardware.workspace_bytes},
             .rates = hardware.rates,
             .link_bytes_per_second = hardware.link_of(i),
             .memory_bytes_per_second = hardware.memory_bytes_per_second,
             .host_bytes_per_copied_byte = hardware.host_bytes_per_copied_byte});
    return placement;
}

// As a run shares the model out: for the tokens that are expected or one, whatever guesses.
std::vector<ModelShard> shards_of(const PlanRequest& request, std::int64_t context_tokens) {
    const ModelConfig& config = request.model.config;
    const ModelWeights& weights = request.model.weights;
    const auto n_devices = static_cast<std::size_t>(request.hardware.n_devices);
    if (n_devices == 1) return {};
    const auto dealt = [&](const std::vector<std::int64_t>& parts) {
        return deal_parts(request.split, config, weights, parts);
    };
    if (request.run && !request.run->parts.empty()) return dealt(request.run->parts);
    if (!request.shares.empty()) return dealt(parts_by_share(request.split, config, weights, request.shares));
    // Devices alike need no search.
    const bool are_alike = request.hardware.budgets.empty() && request.hardware.links.empty();
    if (are_alike && (request.profile || request.split == SplitKind::Tensor))
        return dealt(even_parts(request.split, config, weights, n_devices));
    return dealt(choose_parts(
        split_plan_request(placement_of(request, context_tokens, generation_needs(1, context_tokens, CheckPasses::No),
                                        request.pass_tokens.value_or(1))),
        n_devices));
}

PlacementRequest placement_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes,
                              std::optional<std::int64_t> pass_tokens) {
    PlacementRequest asked =
        placement_of(request, context_tokens, needs_of(request, context_tokens, nodes), pass_tokens);
    asked.shards = shards_of(request, context_tokens);
    return asked;
}

SplitPlan plan_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes,
                  std::optional<std::int64_t> pass_tokens) {
    return SplitPlan(split_plan_request(placement_of(request, context_tokens, nodes, pass_tokens)));
}

template <typename Bytes>
std::size_t sum_of(const SplitPlan& plan, Bytes bytes) {
    std::size_t sum = 0;
    for (const ModelPlan& rank : plan.ranks()) sum += (rank.*bytes)();
    return sum;
}

HostNeeds host_needs(const PlanRequest& request, const SplitPlan& plan, std::int64_t context_tokens) {
    const ConstTensorView& embedding = request.model.weights.token_embedding;
    HostNeeds needs{.pinned_bytes = sum_of(plan, &ModelPlan::pinned_bytes)};
    const bool in_prefill_chunks = request.split == SplitKind::Tensor && plan.ranks().size() > 1;
    if (!in_prefill_chunks && (needs.pinned_bytes > 0 || plan.ranks().size() > 1))
        needs.hidden_bytes = context_tokens * row_bytes(DType::F32, request.model.config.d_model);
    needs.embedding_bytes = embedding.shape[0] * row_bytes(embedding.dtype, embedding.cols());
    if (request.hardware.devices_in_host_memory) needs.device_bytes = plan.sums().device_bytes;
    return needs;
}

// Digits enough to tell 128.4 from 128.0.
std::string gigabytes(std::size_t bytes) {
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30));
}

void check_model_fits(const PlanRequest& request) {
    const std::size_t bytes = file_bytes(request.model.weights, request.model.config);
    const std::size_t memory = request.hardware.host_bytes;
    if (memory == 0 || bytes <= memory) return;
    throw OutOfBudget(
        fmt::format("{} in {} holds {}, the host's memory {}: a model larger than host memory is not served; take a "
                    "smaller or more "
                    "strongly quantised one",
                    request.model.name, request.model.types, gigabytes(bytes), gigabytes(memory)));
}

void check_host(const PlanRequest& request, const HostNeeds& needs, std::int64_t context_tokens) {
    const Hardware& hardware = request.hardware;
    const std::string context = counted(context_tokens, "token");
    if (hardware.host_budget_bytes > 0 && needs.locked_bytes() > hardware.host_budget_bytes)
        throw OutOfBudget(fmt::format(
            "{} with a context of {} streams out of {} of host memory, of which {} may be used; raise --host-memory or "
            "--device-memory, or ask for a shorter --ctx",
            request.model.name, context, size_text(needs.locked_bytes()), size_text(hardware.host_budget_bytes)));
    if (hardware.host_bytes > 0 && needs.total_bytes() > hardware.host_bytes)
        throw OutOfBudget(
            fmt::format("{} with a context of {} takes {} of host memory, there are {}; ask for a "
                        "shorter --ctx, or take a smaller model",
                        request.model.name, context, size_text(needs.total_bytes()), size_text(hardware.host_bytes)));
}

struct FinalPlan {
    PlacementRequest placement;
    SplitPlan plan;
};

/// Plans for the tokens that are expected; if none are given, for as many as ride along and a device has room for.
FinalPlan final_plan(const PlanRequest& request, std::int64_t context_tokens) {
    const auto planned = [&](std::int64_t nodes, std::optional<std::int64_t> pass_tokens) {
        const PlacementRequest placement = placement_of(request, context_tokens, nodes, pass_tokens);
        return FinalPlan{placement, SplitPlan(split_plan_request(placement))};
    };
    if (request.run) return planned(request.run->budget, request.pass_tokens);
    if (request.pass_tokens) return planned(*request.pass_tokens, request.pass_tokens);
    FinalPlan plan = planned(1, std::nullopt);
    for (std::int64_t n = plan.plan.pass_tokens(); n > 1; n /= 2) {
        try {
            return planned(n, n);
        } catch (const OutOfBudget&) {
            continue;
        }
    }
    return plan;
}

bool context_fits(const PlanRequest& request, std::int64_t context_tokens) {
    try {
        check_host(request, host_needs(request, final_plan(request, context_tokens).plan, context_tokens),
                   context_tokens);
    } catch (const OutOfBudget&) {
        return false;
    }
    return true;
}

/// The model's own context, or the most chunks of it that fit; the own where none does, to be refused by name.
std::int64_t chosen_context(const PlanRequest& request) {
    const std::int64_t own = request.model.config.context_tokens;
    if (request.context_tokens) return *request.context_tokens;
    if (context_fits(request, own)) return own;
    std::int64_t fits = 0;
    std::int64_t too_many = ceil_div(own, kChunkTokens);
    while (fits + 1 < too_many) {
        const std::int64_t middle = fits + (too_many - fits) / 2;
        (context_fits(request, middle * kChunkTokens) ? fits : too_many) = middle;
    }
    return fits == 0 ? own : fits * kChunkTokens;
}

std::vector<PlannedRate> planned_rates(const PlanRequest& request, const PlanReport& report) {
    std::vector<double> wanted = request.tokens_per_pass;
    if (wanted.empty())
        for (double n = 1.0; n <= static_cast<double>(report.plan.pass_tokens()) && n <= 32.0; n *= 2.0)
            wanted.push_back(n);
    std::vector<PlannedRate> rates;
    for (const double n : wanted) {
        // One token a pass is plain decoding; more have to be guessed, and guesses fill the pass.
        const bool plain = n <= 1.0;
        rates.push_back({.tokens_per_pass = n,
                         .pass_tokens = plain ? 1 : report.plan.pass_tokens(),
                         .tokens_per_second = n / (plain ? report.one : report.expected).seconds});
    }
    return rates;
}

std::vector<DeviceWork> device_work(const PlanRequest& request, const PlanReport& report) {
    std::vector<DeviceWork> devices;
    if (request.hardware.n_devices == 1) return devices;
    const std::vector<std::int64_t> parts = parts_of(request.split, shards_of(request, report.context_tokens));
    for (const ModelPlan& rank : report.plan.ranks()) {
        const ResidencyPlan& plan = rank.residency();
        DeviceWork work{.parts = parts[devices.size()]};
        work.link_seconds = static_cast<double>(plan.streamed_weights_bytes + plan.streamed_kv_bytes) /
                            request.hardware.link_of(devices.size());
        for (const PlanItem& item : rank.residency_request(1, report.context_tokens).schedule)
            work.compute_seconds += item.compute_seconds;
        devices.push_back(work);
    }
    return devices;
}

/// What drafts by the assumptions: the model over a view of its KV, everything on the devices; else what they say.
double draft_seconds(const PlanRequest& request, const Assumptions& assumed) {
    if (assumed.draft_seconds) return *assumed.draft_seconds;
    PlanRequest resident = request;
    resident.assumed = std::nullopt;
    resident.hardware.budgets.clear();
    resident.hardware.device_bytes = std::numeric_limits<std::size_t>::max();
    return plan_of(resident, assumed.view_tokens, 1, 1).pass(1).seconds;
}

AssumedRate assumed_rate(const PlanRequest& request, const PlanReport& report) {
    const Assumptions& assumed = request.assumed.value();
    return best_chain(assumed, draft_seconds(request, assumed), request.run ? request.run->budget : kMostPassTokens,
                      [&](std::int64_t n_tokens) { return report.plan.pass(n_tokens).seconds; });
}

/// A plan of a way.
struct PlannedWay {
    Way way;
    SplitPlan plan;
};

bool host_holds(const PlanRequest& request, const HostNeeds& needs) {
    return request.hardware.host_bytes == 0 || needs.total_bytes() <= request.hardware.host_bytes;
}

// Returns no value if the host cannot hold it.
std::optional<PlannedWay> cpu_only(const PlanRequest& request, const PlanReport& report) {
    PlanRequest changed = request;
    Hardware& hardware = changed.hardware;
    hardware.n_devices = 1;
    hardware.budgets.clear();
    hardware.links.clear();
    hardware.device_bytes = std::numeric_limits<std::size_t>::max();
    hardware.rates = hardware.host_rates;
    hardware.devices_in_host_memory = true;
    const std::int64_t n = report.plan.pass_tokens();
    SplitPlan plan = plan_of(changed, report.context_tokens, n, n);
    if (!host_holds(changed, host_needs(changed, plan, report.context_tokens))) return std::nullopt;
    const bool on_cpu = request.hardware.devices_in_host_memory;
    return PlannedWay{{.kind = WayKind::CpuOnly,
                       .options = !on_cpu                          ? "--devices cpu"
                                  : request.hardware.n_devices > 1 ? "--devices cpu, without --device-memory"
                                                                   : "without --device-memory"},
                      std::move(plan)};
}

// "--devices cuda:0,cuda:1,cpu"; for CPU devices also their budgets, "--device-memory 27262976,none".
std::string shared_options(const Hardware& hardware) {
    std::string devices;
    std::string budgets;
    for (int i = 0; i < hardware.n_devices; ++i) {
        devices += hardware.devices_in_host_memory ? "cpu," : fmt::format("cuda:{},", i);
        budgets += fmt::format("{},", hardware.budget_of(static_cast<std::size_t>(i)));
    }
    return hardware.devices_in_host_memory ? fmt::format("--devices {}cpu --device-memory {}none", devices, budgets)
                                           : fmt::format("--devices {}cpu", devices);
}

// The devices and the CPU share the layers, as a run with shared_options() splits them. Returns no value if matrices
// are split, or if the devices or the host cannot hold their parts.
std::optional<PlannedWay> shared_layers(const PlanRequest& request, const PlanReport& report) {
    const Hardware& hardware = request.hardware;
    if (hardware.n_devices > 1 && request.split == SplitKind::Tensor) return std::nullopt;
    const std::int64_t n = report.plan.pass_tokens();
    const auto with_cpu = [&](const RunNeeds& needs, std::int64_t pass_tokens) {
        PlacementRequest placement = placement_of(request, report.context_tokens, needs, pass_tokens);
        placement.split = SplitKind::Layers;
        placement.devices.push_back({.kind = DeviceKind::Cpu,
                                     .rates = hardware.host_rates,
                                     .memory_bytes_per_second = hardware.memory_bytes_per_second,
                                     .host_bytes_per_copied_byte = hardware.host_bytes_per_copied_byte});
        return placement;
    };
    try {
        // A run splits the model for plain decoding (PlacedModel), whatever drafts.
        const PlacementRequest plain =
            with_cpu(generation_needs(1, report.context_tokens, CheckPasses::No), request.pass_tokens.value_or(1));
        const std::vector<std::int64_t> parts = choose_parts(split_plan_request(plain), plain.devices.size());
        PlacementRequest placement = with_cpu(needs_of(request, report.context_tokens, n), n);
        placement.shards = deal_parts(SplitKind::Layers, request.model.config, request.model.weights, parts);
        SplitPlan plan(split_plan_request(std::move(placement)));
        HostNeeds needs = host_needs(request, plan, report.context_tokens);
        if (!hardware.devices_in_host_memory) needs.device_bytes = plan.ranks().back().residency().device_bytes;
        if (!host_holds(request, needs)) return std::nullopt;
        return PlannedWay{{.kind = WayKind::Shared, .options = shared_options(hardware), .layers = parts},
                          std::move(plan)};
    } catch (const OutOfBudget&) {
        return std::nullopt;
    } catch (const Unsupported&) {  // fewer layers than devices
        return std::nullopt;
    }
}

// Returns the fastest way for passes of `n_tokens` tokens. Of ways that take the same time within 1 %, one without
// sharing counts as the fastest.
PlannedWay& fastest_way(std::vector<PlannedWay>& ways, std::int64_t n_tokens) {
    const auto seconds = [&](const PlannedWay& way) {
        const double planned = way.plan.pass(n_tokens).seconds;
        return way.way.kind == WayKind::Shared ? kWorthTelling * planned : planned;
    };
    return *std::ranges::min_element(ways, {}, seconds);
}

std::optional<Quantisation> smaller_quantisation(const PlannedModel& model) {
    const std::size_t now = file_bytes(model.weights, model.config);
    for (const Quantisation next :
         {Quantisation::BF16, Quantisation::Q8_0, Quantisation::Q5_K_M, Quantisation::Q4_K_M, Quantisation::Q3_K_M})
        if (file_bytes(shape_weights(model.config, next), model.config) < now - now / 10) return next;
    return std::nullopt;
}

/// The question with one thing changed, and its name.
using Change = std::pair<std::string, PlanRequest>;

void add_device_changes(std::vector<Change>& changes, const PlanRequest& request) {
    const bool on_card = request.profile.has_value();
    {
        PlanRequest changed = request;
        const std::size_t more = on_card ? kMoreMemory : request.hardware.device_bytes;
        changed.hardware.device_bytes += more;
        for (std::size_t& budget : changed.hardware.budgets)
            if (budget < std::numeric_limits<std::size_t>::max()) budget += more;
        if (changed.run) changed.run->parts.clear();
        changes.emplace_back(
            fmt::format("{} more device memory{}", size_text(more), request.hardware.n_devices > 1 ? " each" : ""),
            std::move(changed));
    }
    if (!on_card || request.profile->board == Board::Laptop) return;
    const auto with_profile = [&](const HardwareProfile& profile) {
        PlanRequest changed = request;
        changed.profile = profile;
        const Hardware planned = profile_hardware(profile, request.model.config, request.kv_dtype, request.split);
        changed.hardware.n_devices = planned.n_devices;
        changed.shares.clear();
        changed.hardware.rates = planned.rates;
        changed.hardware.link_bytes_per_second = request.link_bytes_per_second.value_or(planned.link_bytes_per_second);
        return changed;
    };
    if (request.profile->n_cards == 1) {
        HardwareProfile two = *request.profile;
        two.n_cards = 2;
        two.lanes = std::min(two.lanes, 8);  // consumer boards share the slot's lanes
        changes.emplace_back(
            fmt::format("a second {}{}", two.card.name, request.link_bytes_per_second ? "" : ", PCIe x8 each"),
            with_profile(two));
    }
    if (request.profile->lanes < 16 && !request.link_bytes_per_second) {
        HardwareProfile wide = *request.profile;
        wide.lanes = 16;
        wide.board = Board::Workstation;
        changes.emplace_back(wide.n_cards > 1 ? "PCIe x16 for each card" : "PCIe x16", with_profile(wide));
    }
}

void add_model_changes(std::vector<Change>& changes, const PlanRequest& request) {
    if (request.kv_dtype == DType::F32) {
        PlanRequest changed = request;
        changed.kv_dtype = DType::F16;
        changes.emplace_back("--kv-type f16", std::move(changed));
    } else if (request.kv_dtype != DType::Q8_0) {
        PlanRequest changed = request;
        changed.kv_dtype = DType::Q8_0;
        // Rates are of bytes: a row of fewer bytes is taken to need as much time as before to be multiplied.
        const ModelConfig& config = request.model.config;
        changed.hardware.rates.kv = request.hardware.rates.kv.scaled(
            static_cast<double>(config.kv_layout(0, request.kv_dtype).head_row_bytes()) /
            static_cast<double>(config.kv_layout(0, DType::Q8_0).head_row_bytes()));
        // GPUs, which profiles name, do not compute it yet.
        changes.emplace_back(request.profile ? "an 8-bit KV cache (comes later; it changes the model a little)"
                                             : "--kv-type q8 (it changes the model a little)",
                             std::move(changed));
    }
    if (const auto smaller = smaller_quantisation(request.model)) {
        PlanRequest changed = request;
        changed.model = planned_shape(request.model.name, request.model.config, *smaller);
        changes.emplace_back(fmt::format("the model in {}", quantisation_name(*smaller)), std::move(changed));
    }
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

const Way* PlanReport::way(WayKind kind) const {
    const auto found = std::ranges::find_if(ways, [&](const Way& way) { return way.kind == kind; });
    return found == ways.end() ? nullptr : &*found;
}

std::size_t PlanReport::weights_bytes() const {
    return sum_of(plan, &ModelPlan::weights_bytes);
}
std::size_t PlanReport::kv_bytes() const {
    return sum_of(plan, &ModelPlan::kv_bytes);
}
std::size_t PlanReport::pinned_bytes() const {
    return sum_of(plan, &ModelPlan::pinned_bytes);
}

namespace {

PlanReport report_of(const PlanRequest& request) {
    check_model_fits(request);
    const std::int64_t context_tokens = chosen_context(request);
    FinalPlan planned = final_plan(request, context_tokens);
    PlanReport report{
        .context_tokens = context_tokens,
        .context_reduced = !request.context_tokens && context_tokens < request.model.config.context_tokens,
        .plan = std::move(planned.plan)};
    report.memory = device_memory(planned.placement, report.plan);
    report.host = host_needs(request, report.plan, context_tokens);
    check_host(request, report.host, context_tokens);
    report.one = report.plan.pass(1);
    report.expected = report.plan.pass(report.plan.pass_tokens());
    report.rates = planned_rates(request, report);
    report.devices = device_work(request, report);
    if (request.assumed) report.assumed = assumed_rate(request, report);
    return report;
}

}  // namespace

PlanReport make_plan_report(const PlanRequest& request) {
    try {
        return report_of(request);
    } catch (const OutOfBudget& error) {
        if (!request.assumed || request.assumed->draft_seconds) throw;
        throw OutOfBudget(
            fmt::format("{} (--assume: the model itself guesses over a view, with all weights there; draft=SECONDS: "
                        "something else)",
                        error.what()));
    }
}

void compare_ways(const PlanRequest& request, PlanReport& report) {
    report.ways.clear();
    if (report.plan.sums().regime == Regime::AllFits) return;
    std::vector<PlannedWay> planned;
    planned.push_back({{.kind = WayKind::Streaming}, report.plan});
    if (auto way = shared_layers(request, report)) planned.push_back(std::move(*way));
    if (auto way = cpu_only(request, report)) planned.push_back(std::move(*way));
    for (std::int64_t n = 1; n <= kMostPassTokens; n *= 2) {
        PlannedWay& fastest = fastest_way(planned, n);
        if (!fastest.way.from_tokens) fastest.way.from_tokens = n;
    }
    for (PlannedWay& each : planned) {
        each.way.one_seconds = each.plan.pass(1).seconds;
        each.way.expected_seconds = each.plan.pass(report.plan.pass_tokens()).seconds;
        report.ways.push_back(std::move(each.way));
    }
}

std::vector<Improvement> improvements(const PlanRequest& request, const PlanReport& report) {
    std::vector<Improvement> found;
    if (report.plan.sums().regime == Regime::AllFits) return found;
    std::vector<Change> changes;
    add_device_changes(changes, request);
    add_model_changes(changes, request);
    for (auto& [what, changed] : changes) {
        try {
            const SplitPlan plan =
                plan_of(changed, report.context_tokens, report.plan.pass_tokens(), report.plan.pass_tokens());
            check_host(changed, host_needs(changed, plan, report.context_tokens), report.context_tokens);
            const double one = plan.pass(1).seconds;
            const double expected = plan.pass(plan.pass_tokens()).seconds;
            found.push_back({.what = what,
                             .one_seconds = one,
                             .expected_seconds = expected,
                             .gain = std::sqrt(report.one.seconds / one * report.expected.seconds / expected)});
        } catch (const OutOfBudget&) {
            // Two cards with their lanes halved may ask for more than one has; such a change is no help.
            continue;
        }
    }
    std::erase_if(found, [](const Improvement& entry) { return entry.gain < kWorthTelling; });
    std::stable_sort(found.begin(), found.end(),
                     [](const Improvement& a, const Improvement& b) { return a.gain > b.gain; });
    return found;
}

}  // namespace slipstream::tools
