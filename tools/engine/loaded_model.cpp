#include "tools/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/workspace.h"
#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/item_memory.h"
#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "runtime/plan/expert_plan.h"
#include "runtime/plan/pass_items.h"
#include "runtime/plan/split_plan.h"
#include "tools/base/amounts.h"
#include "tools/engine/kept_rates.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

// Returns the memory of a device as "weights 6.5 MiB, kv 6.0 MiB, ..., free 1.2 MiB", without purposes that take
// nothing.
std::string memory_text(const DeviceMemory& memory) {
    std::string text;
    const auto add = [&](std::string name, std::size_t bytes) {
        std::ranges::replace(name, '_', ' ');
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, size_text(bytes));
    };
    for (const auto& [name, bytes] : memory.rows())
        if (bytes > 0) add(std::string(name), bytes);
    if (memory.free) add("free", *memory.free);
    return text;
}

}  // namespace

LoadedModel::LoadedModel(PlacedModel&& placed, const RunNeeds& needs, const EngineCallbacks& callbacks)
    : PlacedModel(std::move(placed)) {
    const auto began = std::chrono::steady_clock::now();
    if (config().has_experts() && tables_folder()) {
        kept_expert_counts_.emplace(*tables_folder(), files(),
                                    [callbacks = this->callbacks()](std::string_view line) { callbacks.note(line); });
        expert_counts_ = kept_expert_counts_->read();
    }
    if (budgeted()) make_plan(needs);
    load_weights(callbacks);
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    report(callbacks);
}

LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;

LoadedModel::~LoadedModel() {
    report_lock_refusal();
}

std::size_t LoadedModel::ring_bytes(std::size_t device) const {
    return plan_ ? plan_->ranks()[device].residency().ring_bytes : 0;
}

bool LoadedModel::streams() const {
    return plan_ && plan_->streams();
}

void LoadedModel::report_lock_refusal() const {
    if (refusal_reported_ || arena_ == nullptr) return;
    const std::string refusal = arena_->lock_refusal();
    if (refusal.empty()) return;
    refusal_reported_ = true;
    callbacks().note(refusal);
}

KvPlacement LoadedModel::kv_placement(std::size_t device) const {
    KvPlacement placement{.resident_chunks = {}, .arena = arena_.get(), .windows = layer_windows(shard_config(device))};
    if (!plan_) return placement;
    const ModelPlan& of_device = plan_->ranks()[device];
    bool streams = false;
    for (std::size_t i = 0; i < of_device.pass_items().size(); ++i) {
        const PassItem& item = of_device.pass_items()[i];
        if (item.tag != PlanTag::Kv) continue;
        const std::size_t resident = of_device.residency().resident_bytes[i];
        streams = streams || resident < item.bytes;
        placement.resident_chunks.push_back(static_cast<std::int64_t>(resident / item.unit_bytes));
    }
    if (!streams) placement.resident_chunks.clear();
    return placement;
}

// Plans what is resident, and makes the arena for what streams and for the hidden states between several devices.
void LoadedModel::make_plan(const RunNeeds& needs) {
    EnginePlanRequest plan_request{.needs = needs, .ring_bytes = offload().ring};
    const PlacementRequest before = placement_request(*this, plan_request);
    try {
        for (std::size_t i = 0; i < devices().size(); ++i)
            reserve_workspace(*devices()[i].device,
                              Forward::workspace_shapes(shard_config(i), kv_dtype(), needs.forward));
    } catch (const OutOfBudget&) {
        // A budget that has no room for the workspace has none for a plan either, and the plan's error names the least
        // budget: so a plan is tried here for its error.
        SplitPlan{split_plan_request(before)};
        throw;
    }
    plan_request.has_workspace = true;
    const auto plan = [&] {
        PlacementRequest request = placement_request(*this, plan_request);
        request.counted = counted_experts(expert_counts_);
        PlanWithin within = plan_within(request, {offload().host_memory, host_memory().available_bytes});
        plan_ = std::make_unique<SplitPlan>(std::move(within.plan));
        fixed_experts_note_ = std::move(within.fixed_note);
        device_memory_ = tools::device_memory(request, *plan_);
        return request;
    };
    plan();
    // A GPU is measured now: once the weights are loaded, its memory budget may be full.
    if (device().kind() == DeviceKind::Cuda) static_cast<void>(rates(0));
    if (!plan_->streams() && devices().size() == 1) return;
    // Something streams, or there are several devices: plan again with the machine's rates, on which the best plan
    // depends. For several devices the plan is also the only source of pass times.
    plan_request.pass_tokens = offload().expect_tokens;
    plan_request.timed = true;
    const PlacementRequest planned = plan();
    look_for_a_faster_way(planned);
    const std::size_t for_head = host_needs(planned, *plan_).head_locked_bytes();
    // Host memory is locked for a GPU, if there is one, so that its copies run at full link speed. If nothing
    // streams, the arena has only hidden states of prompts, and CPU devices copy from pageable memory as well.
    const auto locker =
        std::ranges::find_if(devices(), [](const EngineDevice& each) { return !each.device->shares_host_memory(); });
    arena_ = std::make_unique<PinnedArena>(PinnedArenaOptions{
        .limit_bytes = offload().host_memory - std::min(for_head, offload().host_memory),
        .page_lock = plan_->streams() || locker != devices().end() ? PageLock::Locked : PageLock::Pageable,
        .device = locker != devices().end() ? locker->device.get() : &device()});
}

// Compares the plan, which was made for `request`, with the other ways to run the model.
void LoadedModel::look_for_a_faster_way(const PlacementRequest& request) {
    if (!plan_->streams()) return;
    WaysRequest asked{.placement = request,
                      .plan = plan_.get(),
                      .names_budgets = offload().limits(0).memory_bytes.has_value(),
                      .offload_options = offload().streaming_options,
                      .split_pass_tokens = offload().expect_tokens.value_or(1),
                      .host_rates = host_rates(),
                      .host = {offload().host_memory, host_memory().available_bytes}};
    for (const EngineDevice& each : devices()) asked.device_names.push_back(each.choice.name());
    faster_way_ = faster_way_note(compare_ways(asked), plan_->pass_tokens());
}

// Returns which weight items of a device stream.
WeightPlacement LoadedModel::weight_placement(std::size_t device) const {
    if (!plan_) return {};
    const ModelPlan& plan = plan_->ranks()[device];
    WeightPlacement placement{.max_item_bytes = plan.max_item_bytes(), .arena = arena_.get()};
    for (std::size_t i = 0; i < plan.pass_items().size(); ++i)
        if (plan.pass_items()[i].tag != PlanTag::Kv) placement.streams.push_back(plan.is_on_host(i));
    return placement;
}

void LoadedModel::load_weights(const EngineCallbacks& callbacks) {
    for (std::size_t i = 0; i < devices().size(); ++i) {
        const WorkProgress progress = callbacks.work("loading");
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            progress(static_cast<double>(done), static_cast<double>(total),
                     fmt::format("{} of {}", size_text(done), size_text(total)));
        };
        models_.push_back(
            std::make_unique<Model>(files(), *devices()[i].device,
                                    LoadOptions{.context_tokens = context_tokens(),
                                                .kv_dtype = kv_dtype(),
                                                .placement = weight_placement(i),
                                                .shard = shards().empty() ? std::nullopt : std::optional(shards()[i]),
                                                .on_progress = on_progress}));
    }
}

void LoadedModel::report(const EngineCallbacks& callbacks) const {
    if (const auto* cpu = dynamic_cast<const CpuDevice*>(&device()); cpu != nullptr && !cpu->huge_pages_come_quickly())
        callbacks.detail("the system gives huge pages slowly (fragmented memory): the weights use small ones");
    callbacks.detail(fmt::format("{}: {} {}, {}, {} kernels, {} of KV cache, loaded in {:.2f} s", path().string(),
                                 files().format(), config().family, size_text(files().total_bytes()),
                                 device_forms().forms, size_text(kv_bytes(config(), kv_dtype(), context_tokens())),
                                 load_seconds_));
    for (std::size_t i = 0; i < device_memory_.size(); ++i)
        callbacks.detail(fmt::format("memory of {}: {}", devices()[i].choice.name(), memory_text(device_memory_[i])));
    if (!streams()) return;
    const ResidencyPlan& plan = plan_->sums();
    const ExpertPlan experts = expert_plan(*plan_);
    const std::string slots = expert_slots_text(experts);
    const std::string on_devices =
        fmt::format("{}: {} on the {}", regime_name(plan.regime), size_text(plan.device_bytes),
                    devices().size() > 1 ? "devices" : "device");
    const std::string in_place =
        plan.in_place_bytes == 0
            ? ""
            : fmt::format("; {} of experts stay in host memory, where the CPU computes those that tokens choose",
                          size_text(plan.in_place_bytes));
    if (plan.ring_bytes == 0)
        callbacks.note(on_devices + in_place);
    else
        callbacks.note(fmt::format("{}, {} and {} of KV at full context stream in each pass ({} of ring{}){}",
                                   on_devices, streamed_weights_text(plan, plan_->pass_tokens()),
                                   size_text(plan.streamed_kv_bytes), size_text(plan.ring_bytes),
                                   slots.empty() ? "" : fmt::format(", slots for {}", slots), in_place));
    if (!slots.empty())
        callbacks.detail(fmt::format("hits of slots: {:.1f} % of chosen experts are expected ({})",
                                     100.0 * experts.hits, hits_origin_text(experts)));
    if (!fixed_experts_note_.empty()) callbacks.note(fixed_experts_note_);
    if (faster_way_) callbacks.note(*faster_way_);
    if (plan.most_streamed_weights_bytes == 0) return;
    if (shards_matrices()) {
        callbacks.note(
            "--split tensor: a prompt transfers the weights once for each 512 tokens; layers transfer them once");
    } else if (!plan_->prompts_read_weights_once()) {
        callbacks.note(
            "the ring has no room for a whole layer: a prompt transfers the weights once for each 512 tokens; "
            "with a larger --device-memory, or --ring, only once");
    }
}

void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config) {
    for (const TokenId token : tokens)
        if (token < 0 || token >= config.vocab)
            throw FormatError(
                fmt::format("token {} is not in the model's vocabulary of {}; tokenizer and weights do not "
                            "belong together",
                            token, config.vocab));
}

}  // namespace slipstream::tools
