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

// Smallest gain (Improvement::gain, a factor of speed) of a change that is reported.
constexpr double kLeastGain = 1.01;
// Bytes that the change "more device memory" adds to each GPU of a profile.
constexpr std::size_t kMoreMemory = std::size_t{8} << 30;
constexpr std::size_t kOneGib = std::size_t{1} << 30;
// Most that the hits of a plan differ from assumed ones.
constexpr double kHitsTolerance = 0.001;
constexpr double kMostMissFactor = 1e9;  // no slot has a hit with it
constexpr int kHalvings = 60;

// Returns the needs of the run; if the run is not known, of passes of up to `nodes` tokens.
RunNeeds needs_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes) {
    RunNeeds needs = generation_needs(request.run ? request.run->budget : nodes, context_tokens, CheckPasses::No);
    if (request.run) {
        needs.view = request.run->view;
        needs.hidden_rows = request.run->hidden_rows;
        needs.head_pass_bytes = request.run->head_pass_bytes;
    }
    if (!needs.view && request.assumed) needs.view = request.assumed->view(request.run ? request.run->budget : nodes);
    return needs;
}

// Returns the model on its devices, which have no shards yet.
ModelOnDevices on_devices(const PlanRequest& request, std::int64_t context_tokens) {
    const Hardware& hardware = request.hardware;
    ModelOnDevices model{.config = &request.model.config,
                         .weights = &request.model.weights,
                         .kv_dtype = request.kv_dtype,
                         .context_tokens = context_tokens,
                         .devices = {},
                         .split = request.split};
    const DeviceKind kind = hardware.devices_in_host_memory ? DeviceKind::Cpu : DeviceKind::Cuda;
    for (std::size_t i = 0; i < static_cast<std::size_t>(hardware.n_devices); ++i)
        model.devices.push_back(
            {.kind = kind,
             .budget_bytes = hardware.budget_of(i),
             .taken = request.run ? request.run->taken[i] : TakenMemory{.workspace_bytes = hardware.workspace_bytes},
             .speed = hardware.speed_of(i),
             .misses = expert_misses(kind, request.experts)});
    return model;
}

bool devices_are_alike(const Hardware& hardware) {
    std::vector<DeviceTraits> devices;
    for (std::size_t i = 0; i < static_cast<std::size_t>(hardware.n_devices); ++i)
        devices.push_back({.limits = {hardware.budget_of(i), hardware.link_of(i)}});
    return are_alike(devices);
}

// Returns the shard of each device, chosen as a run chooses them: for passes of the expected tokens (default 1),
// whatever the drafter, and without the kept counts of experts and assumed hits. Empty for one device.
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
    // A profile's GPUs that are alike get even parts of the layers, too.
    if ((request.profile || request.split == SplitKind::Tensor) && devices_are_alike(request.hardware))
        return dealt(even_parts(request.split, config, weights, n_devices));
    const PlacementRequest plain = placement_request(on_devices(request, context_tokens),
                                                     {.needs = generation_needs(1, context_tokens, CheckPasses::No),
                                                      .ring_bytes = request.ring_bytes,
                                                      .pass_tokens = request.pass_tokens.value_or(1)});
    return dealt(choose_parts(split_plan_request(plain), n_devices));
}

PlacementRequest placement_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes,
                              std::optional<std::int64_t> pass_tokens) {
    ModelOnDevices model = on_devices(request, context_tokens);
    model.shards = shards_of(request, context_tokens);
    PlacementRequest asked = placement_request(std::move(model), {.needs = needs_of(request, context_tokens, nodes),
                                                                  .ring_bytes = request.ring_bytes,
                                                                  .pass_tokens = pass_tokens});
    asked.miss_factor = request.miss_factor;
    asked.counted = request.counted;
    return asked;
}

/// A plan, and the request that it was made for.
struct PlacedPlan {
    PlacementRequest placement;
    SplitPlan plan;
    std::string fixed_note;  // as PlanWithin::fixed_note
    [[nodiscard]] HostNeeds host_needs(const PlanRequest& request) const {
        HostNeeds needs = tools::host_needs(placement, plan);
        needs.kept_bytes = request.kept_bytes;
        if (!request.run) needs.hidden_tail_bytes = request.hidden_tail_bytes;
        return needs;
    }
};

HostLimits host_limits(const PlanRequest& request) {
    return {request.hardware.host_budget_bytes, request.hardware.host_bytes, request.kept_bytes};
}

PlacedPlan plan_of(const PlanRequest& request, std::int64_t context_tokens, std::int64_t nodes,
                   std::optional<std::int64_t> pass_tokens) {
    PlacementRequest placement = placement_of(request, context_tokens, nodes, pass_tokens);
    PlanWithin within = plan_within(placement, host_limits(request));
    return {std::move(placement), std::move(within.plan), std::move(within.fixed_note)};
}

template <typename Bytes>
std::size_t sum_of(const SplitPlan& plan, Bytes bytes) {
    std::size_t sum = 0;
    for (const ModelPlan& rank : plan.ranks()) sum += (rank.*bytes)();
    return sum;
}

// Returns a size in GiB with one decimal, so that 128.4 and 128.0 GiB differ in the message.
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
    if (hardware.host_budget_bytes > 0 && needs.needed_locked_bytes() > hardware.host_budget_bytes)
        throw OutOfBudget(fmt::format(
            "{} with a context of {} takes {} of pinned host memory, of which {} may be used; raise --host-memory or "
            "--device-memory, or ask for a shorter --ctx",
            request.model.name, context, size_text(needs.needed_locked_bytes()),
            size_text(hardware.host_budget_bytes)));
    if (hardware.host_bytes > 0 && needs.total_bytes() > hardware.host_bytes)
        throw OutOfBudget(
            fmt::format("{} with a context of {} takes {} of host memory, there are {}; ask for a "
                        "shorter --ctx, or take a smaller model{}",
                        request.model.name, context, size_text(needs.total_bytes()), size_text(hardware.host_bytes),
                        needs.kept_bytes > 0 ? ", or less --kept-memory" : ""));
}

/// Returns the plan for the expected tokens. If none are given, plans for the largest pass that takes about as long as
/// a pass of one token, halved until its memory fits on each device.
PlacedPlan final_plan(const PlanRequest& request, std::int64_t context_tokens) {
    if (request.run) return plan_of(request, context_tokens, request.run->budget, request.pass_tokens);
    if (request.pass_tokens) return plan_of(request, context_tokens, *request.pass_tokens, request.pass_tokens);
    PlacedPlan plan = plan_of(request, context_tokens, 1, std::nullopt);
    for (std::int64_t n = plan.plan.pass_tokens(); n > 1; n /= 2) {
        try {
            return plan_of(request, context_tokens, n, n);
        } catch (const OutOfBudget&) {
            continue;
        }
    }
    return plan;
}

/// Returns whether this context fits into memory. Throws OutOfBudget if a run of `generate` does not fit on the
/// devices: it shortens the context for the host's memory only.
bool context_fits(const PlanRequest& request, std::int64_t context_tokens) {
    std::optional<PlacedPlan> planned;
    try {
        planned = final_plan(request, context_tokens);
    } catch (const OutOfBudget&) {
        if (request.run) throw;
        return false;
    }
    try {
        check_host(request, planned->host_needs(request), context_tokens);
    } catch (const OutOfBudget&) {
        return false;
    }
    return true;
}

/// Returns the context to plan for: the requested one, else the model's own, else the most whole chunks that fit. If
/// not even one chunk fits, returns the model's own context, so that the error names it.
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
        // One token per pass is plain decoding; for more, draft tokens fill the pass.
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
        DeviceWork work{.parts = parts[devices.size()]};
        const ResidencyRequest one = rank.residency_request(1, report.context_tokens);
        for (const PlanItem& item : one.schedule) work.compute_seconds += item.compute_seconds;
        work.streamed_bytes = copied_bytes(one, rank.residency().resident_bytes).all();
        work.link_seconds = work.streamed_bytes / request.hardware.link_of(devices.size());
        devices.push_back(work);
    }
    return devices;
}

/// Returns the drafting time per draft token: the assumed one, else that of a pass of the model over a view of its KV,
/// with everything resident.
double draft_seconds(const PlanRequest& request, const Assumptions& assumed) {
    if (assumed.draft_seconds) return *assumed.draft_seconds;
    PlanRequest resident = request;
    resident.assumed = std::nullopt;
    resident.hardware.budgets.clear();
    resident.hardware.device_bytes = std::numeric_limits<std::size_t>::max();
    const std::int64_t n_rows =
        rows_like_view(assumed.view_options(), request.model.config, request.kv_dtype,
                       request.hardware.devices_in_host_memory ? DeviceKind::Cpu : DeviceKind::Cuda);
    return plan_of(resident, n_rows, 1, 1).plan.pass(1).seconds;
}

AssumedRate assumed_rate(const PlanRequest& request, const PlanReport& report) {
    const Assumptions& assumed = request.assumed.value();
    return best_chain(assumed, draft_seconds(request, assumed), request.run ? request.run->budget : kMostPassTokens,
                      [&](std::int64_t n_tokens) { return report.plan.pass(n_tokens).seconds; });
}

std::optional<Quantisation> smaller_quantisation(const PlannedModel& model) {
    const std::size_t now = file_bytes(model.weights, model.config);
    for (const Quantisation next :
         {Quantisation::BF16, Quantisation::Q8_0, Quantisation::Q5_K_M, Quantisation::Q4_K_M, Quantisation::Q3_K_M})
        if (file_bytes(shape_weights(model.config, next), model.config) < now - now / 10) return next;
    return std::nullopt;
}

/// The request with one change, and the name of the change.
using Change = std::pair<std::string, PlanRequest>;

// Returns the request with `more` bytes more memory on each device that has a budget.
PlanRequest with_more_memory(const PlanRequest& request, std::size_t more) {
    PlanRequest changed = request;
    changed.hardware.device_bytes += more;
    for (std::size_t& budget : changed.hardware.budgets)
        if (budget < std::numeric_limits<std::size_t>::max()) budget += more;
    if (changed.run) changed.run->parts.clear();
    return changed;
}

// Returns the plan of a changed request, for the passes and the context of `report`; no value if its memory is too
// small, such as with a second GPU on half of the lanes.
std::optional<SplitPlan> plan_changed(const PlanRequest& changed, const PlanReport& report) {
    try {
        PlacedPlan planned =
            plan_of(changed, report.context_tokens, report.plan.pass_tokens(), report.plan.pass_tokens());
        check_host(changed, planned.host_needs(changed), report.context_tokens);
        return std::move(planned.plan);
    } catch (const OutOfBudget&) {
        return std::nullopt;
    }
}

void add_device_changes(std::vector<Change>& changes, const PlanRequest& request) {
    const bool on_card = request.profile.has_value();
    const std::size_t more = on_card ? kMoreMemory : request.hardware.device_bytes;
    changes.emplace_back(
        fmt::format("{} more device memory{}", size_text(more), request.hardware.n_devices > 1 ? " each" : ""),
        with_more_memory(request, more));
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
        two.lanes = std::min(two.lanes, 8);  // the GPUs of a consumer board share 16 lanes
        changes.emplace_back(
            fmt::format("a second {}{}", two.card.name, request.link_bytes_per_second ? "" : ", PCIe x8 each"),
            with_profile(two));
    }
    if (request.profile->lanes < 16 && !request.link_bytes_per_second) {
        HardwareProfile wide = *request.profile;
        wide.lanes = 16;
        wide.board = Board::Workstation;
        changes.emplace_back(wide.n_cards > 1 ? "PCIe x16 for each GPU" : "PCIe x16", with_profile(wide));
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
        // Rates are per byte. Multiplying a row is assumed to take as long as before, so each of its fewer bytes takes
        // longer.
        const ModelConfig& config = request.model.config;
        changed.hardware.rates.kv = request.hardware.rates.kv.scaled(
            static_cast<double>(config.kv_layout(config.first_attention_layer(), request.kv_dtype).head_row_bytes()) /
            static_cast<double>(config.kv_layout(config.first_attention_layer(), DType::Q8_0).head_row_bytes()));
        changes.emplace_back("--kv-type q8 (it changes the model a little)", std::move(changed));
    }
    if (const auto smaller = smaller_quantisation(request.model)) {
        PlanRequest changed = request;
        changed.model = planned_shape(request.model.name, request.model.config, *smaller);
        changes.emplace_back(fmt::format("the model in {}", quantisation_name(*smaller)), std::move(changed));
    }
}

}  // namespace

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
    PlacedPlan planned = final_plan(request, context_tokens);
    const HostNeeds host = planned.host_needs(request);
    PlanReport report{
        .context_tokens = context_tokens,
        .context_reduced = !request.context_tokens && context_tokens < request.model.config.context_tokens,
        .plan = std::move(planned.plan),
        .fixed_experts_note = std::move(planned.fixed_note)};
    report.experts = expert_plan(report.plan);
    report.memory = device_memory(planned.placement, report.plan);
    report.host = host;
    check_host(request, report.host, context_tokens);
    report.one = report.plan.pass(1);
    report.expected = report.plan.pass(report.plan.pass_tokens());
    report.rates = planned_rates(request, report);
    report.devices = device_work(request, report);
    if (request.assumed) report.assumed = assumed_rate(request, report);
    return report;
}

}  // namespace

// The misses of all layers are multiplied by one factor, so that hits still rise with the slots.
void assume_hits(PlanRequest& request) {
    if (!request.assumed_hits) return;
    const double wanted = *request.assumed_hits;
    request.miss_factor = 1.0;
    std::optional<SplitPlan> plan;
    try {
        plan = final_plan(request, chosen_context(request)).plan;
    } catch (const OutOfBudget&) {
        return;
    }
    const ExpertPlan experts = expert_plan(*plan);
    if (experts.regime != ExpertRegime::InSlots)
        throw RequestError(
            fmt::format("--assume hits={}: no expert has a slot in this plan ({}); leave it out", wanted,
                        experts.n_experts > 0 ? expert_regime_name(experts.regime) : "the model has no experts"));
    const auto refuse = [&](double bound, std::string_view side) {
        throw RequestError(fmt::format("--assume hits={}: with slots for {}, hits are {:.3f} at {}", wanted,
                                       expert_slots_text(experts), bound, side));
    };
    // Hits never rise with the factor: from those that the slots allow to those of experts that stay on a device.
    double low = 0.0;
    double high = 1.0;
    if (const double most = expert_hits(*plan, low); wanted > most + kHitsTolerance) refuse(most, "most");
    while (expert_hits(*plan, high) > wanted && high < kMostMissFactor) high *= 2.0;
    if (const double least = expert_hits(*plan, high); wanted < least - kHitsTolerance) refuse(least, "least");
    for (int i = 0; i < kHalvings; ++i) {
        const double middle = 0.5 * (low + high);
        (expert_hits(*plan, middle) > wanted ? low : high) = middle;
    }
    request.miss_factor = high;
}

PlanReport make_plan_report(const PlanRequest& request) {
    try {
        return report_of(request);
    } catch (const OutOfBudget& error) {
        if (!request.assumed || request.assumed->draft_seconds) throw;
        throw OutOfBudget(fmt::format(
            "{} (--assume: the model drafts for itself over a KV view, with all weights resident; draft=SECONDS: "
            "something else)",
            error.what()));
    }
}

void compare_ways(const PlanRequest& request, PlanReport& report) {
    report.ways.clear();
    if (report.plan.sums().regime == Regime::AllFits) return;
    const Hardware& hardware = request.hardware;
    const std::int64_t n = report.plan.pass_tokens();
    WaysRequest asked{.placement = placement_of(request, report.context_tokens, n, n),
                      .plan = &report.plan,
                      .names_budgets = hardware.devices_in_host_memory,
                      .offload_options = request.offload_options,
                      .split_pass_tokens = request.pass_tokens.value_or(1),
                      .host_rates = hardware.host_rates,
                      .host = host_limits(request)};
    for (int i = 0; i < hardware.n_devices; ++i)
        asked.device_names.push_back(hardware.devices_in_host_memory ? "cpu" : fmt::format("cuda:{}", i));
    report.ways = compare_ways(asked);
}

void plan_one_more_gib(const PlanRequest& request, PlanReport& report) {
    report.one_more_gib.reset();
    if (report.experts.regime == ExpertRegime::Fit) return;
    const std::optional<SplitPlan> plan = plan_changed(with_more_memory(request, kOneGib), report);
    if (!plan) return;
    const ExpertPlan experts = expert_plan(*plan);
    report.one_more_gib = {.tokens_per_second = 1.0 / plan->pass(1).seconds,
                           .expected_seconds = plan->pass(report.plan.pass_tokens()).seconds,
                           .hits = experts.hits,
                           .ring_bytes = plan->sums().ring_bytes,
                           .regime = experts.regime};
}

std::vector<Improvement> improvements(const PlanRequest& request, const PlanReport& report) {
    std::vector<Improvement> found;
    if (report.plan.sums().regime == Regime::AllFits) return found;
    std::vector<Change> changes;
    add_device_changes(changes, request);
    add_model_changes(changes, request);
    for (auto& [what, changed] : changes) {
        const std::optional<SplitPlan> plan = plan_changed(changed, report);
        if (!plan) continue;
        const double one = plan->pass(1).seconds;
        const double expected = plan->pass(plan->pass_tokens()).seconds;
        found.push_back({.what = what,
                         .one_seconds = one,
                         .expected_seconds = expected,
                         .gain = std::sqrt(report.one.seconds / one * report.expected.seconds / expected)});
    }
    std::erase_if(found, [](const Improvement& entry) { return entry.gain < kLeastGain; });
    std::stable_sort(found.begin(), found.end(),
                     [](const Improvement& a, const Improvement& b) { return a.gain > b.gain; });
    return found;
}

}  // namespace slipstream::tools
