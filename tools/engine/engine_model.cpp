#include "tools/engine/engine_model.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "draft/tables/model_fingerprint.h"
#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"
#include "tools/engine/context_choice.h"
#include "tools/engine/kept_splits.h"
#include "tools/machine/host.h"
#include "tools/machine/tokenizer_files.h"

namespace slipstream::tools {

EngineModel open_model(const std::filesystem::path& path) {
    EngineModel engine;
    engine.path = path;
    engine.files = ModelFiles::open(path);
    return engine;
}

DeviceForms EngineModel::device_forms() const {
    std::vector<DeviceChoice> choices;
    for (const EngineDevice& each : devices) choices.push_back(each.choice);
    return tools::device_forms(choices);
}

KvPlacement EngineModel::kv_placement(std::size_t device) const {
    KvPlacement placement{.resident_chunks = {}, .arena = arena.get()};
    if (!plan) return placement;
    const ModelPlan& of_device = plan->ranks()[device];
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

namespace {

// More than anything takes, and still far from overflow.
constexpr std::size_t kRoomyBytes = std::size_t{1} << 56;

void make_devices(EngineModel& engine, const ComputeOptions& options, const EngineCallbacks& callbacks) {
    std::string names;
    engine.faults = std::make_unique<CpuFaults>();
    engine.faults->stop = callbacks.cancel;
    engine.split = options.offload.split.value_or(SplitKind::Layers);
    engine.n_threads = options.n_threads;
    engine.device_threads = device_threads(options.n_threads, options.devices.size(), engine.split);
    for (std::size_t i = 0; i < options.devices.size(); ++i) {
        const DeviceChoice& choice = options.devices[i];
        const DeviceLimits limits = options.offload.limits(i);
        engine.devices.push_back(
            {.choice = choice,
             .device = make_compute_device(
                 choice, {.n_threads = engine.device_threads,
                          .memory_bytes = limits.memory_bytes,
                          .link_bytes_per_second = limits.link_bytes_per_second,
                          .number = options.devices.size() > 1 ? static_cast<int>(i) + 1 : 0,
                          .on_announcement = [&callbacks](std::string_view line) { callbacks.note(line); },
                          .faults = engine.faults.get()}),
             .throttled_link_bytes_per_second = limits.link_bytes_per_second});
        const Device& device = *engine.devices.back().device;
        if (choice.card)
            callbacks.note(
                fmt::format("{} computes ({}); this backend was tested in emulation only so far: where a "
                            "text looks wrong compare --devices cpu",
                            choice.name(), device.instruction_form()));
        if (const auto* card = dynamic_cast<const CudaDevice*>(&device); card != nullptr && !card->no_blas().empty())
            callbacks.note(card->no_blas());
        names += fmt::format("{}{}", names.empty() ? "" : ",", choice.name());
    }
    engine.budgeted = engine.devices.size() > 1 || engine.device().budget().limit_bytes() != Budget::kUnlimited;
    callbacks.choice("devices", names, options.devices.front().why);
    callbacks.choice("threads", fmt::format("{}", options.n_threads),
                     "physical cores, or what the control group allows");
}

// All that a planned split follows from, but for what is measured.
std::string split_key(const EngineModel& engine, const ComputeOptions& options) {
    std::string key = engine.split == SplitKind::Layers ? "" : fmt::format("{} ", split_name(engine.split));
    key += fmt::format("{:016x} ctx {} threads {} kv {} expect {} ring {}", draft::model_fingerprint(*engine.files),
                       engine.context_tokens, engine.device_threads, dtype_name(engine.kv_dtype),
                       options.offload.expect_tokens.value_or(1), options.offload.ring.value_or(0));
    for (std::size_t i = 0; i < engine.devices.size(); ++i) {
        const DeviceLimits limits = options.offload.limits(i);
        key += fmt::format(", {} {} memory {} link {}", engine.devices[i].choice.name(), engine.devices[i].choice.form,
                           limits.memory_bytes ? fmt::format("{}", *limits.memory_bytes) : "-",
                           limits.link_bytes_per_second);
    }
    return key;
}

// By what this machine computes and copies, for a text without guesses: sources never move a share.
std::vector<std::int64_t> planned_parts(EngineModel& engine, const ComputeOptions& options) {
    const ModelWeights weights = engine.files->weights();
    engine.text_tokens = engine.context_tokens;
    return choose_parts(split_plan_request(engine, {.weights = &weights,
                                                    .needs = generation_needs(1, 0, CheckPasses::No),
                                                    .ring_bytes = options.offload.ring,
                                                    .pass_tokens = options.offload.expect_tokens.value_or(1),
                                                    .timed = true}),
                        engine.devices.size());
}

// Whether nothing but the order tells the devices apart, and perhaps the slots of cards.
bool are_alike(const EngineModel& engine, const ComputeOptions& options) {
    const DeviceLimits first = options.offload.limits(0);
    const auto* card = dynamic_cast<const CudaDevice*>(&engine.device());
    for (std::size_t i = 1; i < options.devices.size(); ++i) {
        if (options.offload.limits(i) != first) return false;
        const auto* other = dynamic_cast<const CudaDevice*>(engine.devices[i].device.get());
        if (card != nullptr && other != nullptr &&
            (std::string_view(card->properties().name) != other->properties().name ||
             card->properties().memory_bytes != other->properties().memory_bytes))
            return false;
    }
    return device_forms(options.devices).is_one;
}

// The layers of each device, or the kv heads. Of layers between devices of one kind a split changes no bit, and is
// planned at each start; others are planned once and kept, but for matrices among devices alike, who have even shares.
std::vector<std::int64_t> chosen_parts(EngineModel& engine, const ComputeOptions& options, std::string& why) {
    const ModelConfig& config = engine.files->config();
    if (!options.offload.shares.empty())
        return parts_by_share(engine.split, config, engine.files->weights(), options.offload.shares);
    const bool is_tensor = engine.split == SplitKind::Tensor;
    if (is_tensor && are_alike(engine, options)) {
        why = "even: the devices are alike";
        return even_parts(engine.split, config, engine.files->weights(), engine.devices.size());
    }
    why = "planned: the least time for a pass";
    if (!is_tensor && device_forms(options.devices).is_one) return planned_parts(engine, options);
    if (!options.splits_folder)
        throw RequestError(fmt::format(
            "{}: a split over {} is kept beside the tables, so that texts stay the same, and there is no such "
            "folder; name one by --tables, or give --shares {}",
            options.offload.split_where.empty() ? "--devices" : options.offload.split_where,
            is_tensor ? "unequal devices, of matrices," : "devices of several kinds",
            fmt::join(even_parts(engine.split, config, engine.files->weights(), engine.devices.size()), ",")));
    const std::string key = split_key(engine, options);
    const std::int64_t n = n_parts(engine.split, config);
    if (const auto kept = kept_split(*options.splits_folder, key, engine.devices.size(), n)) {
        why = "planned before, and kept";
        return *kept;
    }
    return keep_split(*options.splits_folder, key, planned_parts(engine, options));
}

// Which share each device has.
void choose_shares(EngineModel& engine, const ComputeOptions& options, const EngineCallbacks& callbacks) {
    if (engine.devices.size() == 1) return;
    std::string why;
    try {
        const std::vector<std::int64_t> parts = chosen_parts(engine, options, why);
        engine.shards = deal_parts(engine.split, engine.files->config(), engine.files->weights(), parts);
        callbacks.choice("shares", fmt::format("{} {}s", fmt::join(parts, ","), part_name(engine.split)), why);
    } catch (const Unsupported& error) {
        const OffloadOptions& offload = options.offload;
        const std::string& where = offload.shares_where.empty() ? offload.split_where : offload.shares_where;
        throw RequestError(fmt::format("{}: {}", where.empty() ? "--devices" : where, error.what()));
    }
}

// What is resident, and the arena for what is not, and for what devices hand to one another.
void make_plan(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs, const ModelWeights& weights) {
    for (std::size_t i = 0; i < engine.devices.size(); ++i) {
        const ModelConfig config =
            engine.shards.empty() ? engine.files->config() : shard_config(engine.files->config(), engine.shards[i]);
        reserve_workspace(*engine.devices[i].device, Forward::workspace_shapes(config, engine.kv_dtype, needs.forward));
    }
    EnginePlanRequest plan_request{
        .weights = &weights, .needs = needs, .ring_bytes = options.offload.ring, .has_workspace = true};
    engine.plan = std::make_unique<SplitPlan>(split_plan_request(engine, plan_request));
    if (!engine.plan->streams() && engine.devices.size() == 1) return;
    // Something streams: what is best depends on what the machine takes for it. Of several devices the plan alone tells
    // what passes take.
    plan_request.pass_tokens = options.offload.expect_tokens;
    plan_request.timed = true;
    engine.plan = std::make_unique<SplitPlan>(split_plan_request(engine, plan_request));
    // Locked for a card, where there is one: its copies are then as quick as those of the others. Where nothing streams
    // hidden states of prompts lie there alone, and CPU devices copy them as they are.
    const auto locker = std::ranges::find_if(
        engine.devices, [](const EngineDevice& each) { return !each.device->shares_host_memory(); });
    engine.arena = std::make_unique<PinnedArena>(PinnedArenaOptions{
        .limit_bytes = options.offload.host_memory,
        .page_lock = engine.plan->streams() || locker != engine.devices.end() ? PageLock::Locked : PageLock::Pageable,
        .device = locker != engine.devices.end() ? locker->device.get() : &engine.device()});
}

// Which items of a device stream.
WeightPlacement weight_placement(const EngineModel& engine, std::size_t device) {
    if (!engine.plan) return {};
    const ModelPlan& plan = engine.plan->ranks()[device];
    WeightPlacement placement{.max_item_bytes = plan.max_item_bytes(), .arena = engine.arena.get()};
    for (std::size_t i = 0; i < plan.pass_items().size(); ++i)
        if (plan.pass_items()[i].tag == PlanTag::Weights)
            placement.streams.push_back(plan.residency().resident_bytes[i] < plan.pass_items()[i].bytes);
    return placement;
}

void load_weights(EngineModel& engine, const EngineCallbacks& callbacks) {
    for (std::size_t i = 0; i < engine.devices.size(); ++i) {
        const WorkProgress progress = callbacks.work("loading");
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            progress(static_cast<double>(done), static_cast<double>(total),
                     fmt::format("{} of {}", size_text(done), size_text(total)));
        };
        engine.models.push_back(std::make_unique<Model>(
            *engine.files, *engine.devices[i].device,
            LoadOptions{.context_tokens = engine.context_tokens,
                        .kv_dtype = engine.kv_dtype,
                        .placement = weight_placement(engine, i),
                        .shard = engine.shards.empty() ? std::nullopt : std::optional(engine.shards[i]),
                        .on_progress = on_progress}));
    }
}

}  // namespace

void make_device(EngineModel& engine, const ComputeOptions& options, const EngineCallbacks& callbacks) {
    const ModelConfig& config = engine.files->config();
    engine.kv_dtype = options.kv_dtype.value_or(config.kv_dtype);
    const ContextChoice choice =
        choose_context(config, engine.kv_dtype, options.context_tokens, engine.files->total_bytes(), host_memory());
    engine.context_tokens = choice.tokens;
    if (const auto note = pre_tokenizer_note(engine.files->tokenizer_source())) callbacks.note(*note);
    if (choice.reduced) callbacks.note(reduction_note(config, choice.tokens));
    if (choice.tokens > config.context_tokens)
        callbacks.note(fmt::format("the model was made for {}; with --ctx {} it may lose its way beyond them",
                                   counted(config.context_tokens, "token"), choice.tokens));
    make_devices(engine, options, callbacks);
    callbacks.choice("ctx", fmt::format("{}", choice.tokens),
                     choice.reduced ? "what fits into memory" : "the model's own");
    callbacks.choice("kv-type", dtype_name(engine.kv_dtype), "the model's own");
    choose_shares(engine, options, callbacks);
}

SplitPlanRequest split_plan_request(EngineModel& engine, const EnginePlanRequest& plan_request) {
    const auto rank_request = [&engine, plan_request](std::size_t rank, const ModelConfig& config,
                                                      const ModelWeights& weights) {
        Device& device = *engine.devices[rank].device;
        const std::size_t workspace =
            plan_request.has_workspace ? 0
                                       : workspace_bytes(device, Forward::workspace_shapes(config, engine.kv_dtype,
                                                                                           plan_request.needs.forward));
        ModelPlanRequest request =
            memory_request({.config = &config,
                            .weights = &weights,
                            .kv_dtype = engine.kv_dtype,
                            .text_tokens = engine.text_tokens,
                            .needs = plan_request.needs,
                            .taken_bytes = device.budget().used_bytes() + workspace +
                                           (plan_request.beside_bytes.empty() ? 0 : plan_request.beside_bytes[rank]),
                            .summing = {device.kind(), engine.shards_matrices() ? engine.devices.size() : 0}});
        request.budget_bytes = std::min(
            plan_request.budget_bytes.empty() ? device.budget().limit_bytes() : plan_request.budget_bytes[rank],
            kRoomyBytes);
        request.ring_bytes = plan_request.ring_bytes.value_or(0);
        request.link_bytes_per_second = 1.0;  // any, where speeds are not asked for
        if (plan_request.timed) {
            static_cast<void>(machine_rates(engine, rank, *plan_request.weights));
            set_rates(request, engine.devices[rank]);
            // Cards share it for their copies; of CPU devices it was measured with the threads of one.
            if (engine.shards_matrices() && engine.devices[rank].choice.card)
                request.memory_bytes_per_second /= static_cast<double>(engine.devices.size());
        }
        return request;
    };
    return {.config = &engine.files->config(),
            .weights = plan_request.weights,
            .kind = engine.split,
            .shards = engine.shards,
            .rank_request = rank_request,
            .pass_tokens = plan_request.pass_tokens};
}

std::optional<SplitPlan> fitting_plan(EngineModel& engine, EnginePlanRequest& plan_request) {
    do {
        try {
            return SplitPlan(split_plan_request(engine, plan_request));
        } catch (const OutOfBudget&) {  // the next may fit
        }
    } while (shrink_check(plan_request.needs));
    return std::nullopt;
}

const MachineRates& machine_rates(EngineModel& engine, std::size_t device, const ModelWeights& weights) {
    EngineDevice& asked = engine.devices[device];
    if (asked.rates) return *asked.rates;
    for (const EngineDevice& other : engine.devices)
        if (other.rates && !other.choice.card && !asked.choice.card) asked.rates = other.rates;
    if (asked.rates) return *asked.rates;
    Device* card = asked.device->kind() == DeviceKind::Cuda ? asked.device.get() : nullptr;
    // CPU devices that share matrices compute at once, on cores and memory that they share.
    const std::size_t at_once = engine.shards_matrices() && card == nullptr ? engine.devices.size() : 1;
    asked.rates = measure_rates({.config = &engine.files->config(),
                                 .weights = &weights,
                                 .kv_dtype = engine.kv_dtype,
                                 .n_threads = engine.device_threads * static_cast<int>(at_once),
                                 .card = card})
                      .shared_by(at_once);
    return *asked.rates;
}

void set_rates(ModelPlanRequest& request, const EngineDevice& device) {
    const MachineRates& machine = *device.rates;
    const double throttled = device.throttled_link_bytes_per_second;
    request.rates = machine.rates;
    request.link_bytes_per_second =
        throttled > 0.0 ? std::min(throttled, machine.copy_bytes_per_second) : machine.copy_bytes_per_second;
    request.memory_bytes_per_second = machine.memory_bytes_per_second;
    request.host_bytes_per_copied_byte = machine.host_bytes_per_copied_byte;
}

void load_model(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs,
                const EngineCallbacks& callbacks) {
    const auto began = std::chrono::steady_clock::now();
    const ModelConfig& config = engine.files->config();
    engine.text_tokens = needs.text_tokens > 0 ? needs.text_tokens : engine.context_tokens;
    if (engine.budgeted) make_plan(engine, options, needs, engine.files->weights());
    load_weights(engine, callbacks);
    engine.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (const auto* cpu = dynamic_cast<const CpuDevice*>(&engine.device());
        cpu != nullptr && !cpu->huge_pages_come_quickly())
        callbacks.detail("the system gives huge pages slowly (fragmented memory): the weights lie on small ones");
    callbacks.detail(fmt::format("{}: {} {}, {}, {} kernels, {} of KV cache, loaded in {:.2f} s", engine.path.string(),
                                 engine.files->format(), architecture_name(config.architecture),
                                 size_text(engine.files->total_bytes()), device_forms(options.devices).forms,
                                 size_text(kv_bytes(config, engine.kv_dtype, engine.context_tokens)),
                                 engine.load_seconds));
    if (!engine.streams()) return;
    const ResidencyPlan& plan = engine.plan->sums();
    callbacks.note(fmt::format(
        "{}: {} on the {}, {} of weights and {} of KV at full context stream in each pass ({} of ring)",
        regime_name(plan.regime), size_text(plan.device_bytes), engine.devices.size() > 1 ? "devices" : "device",
        size_text(plan.streamed_weights_bytes), size_text(plan.streamed_kv_bytes), size_text(plan.ring_bytes)));
    if (plan.streamed_weights_bytes == 0) return;
    if (engine.shards_matrices()) {
        callbacks.note(
            "--split tensor: a prompt brings the weights over once for each 512 tokens; layers bring them once");
    } else if (!engine.plan->prompts_read_weights_once()) {
        callbacks.note(
            "the ring has no room for a whole layer: a prompt brings the weights over once for each 512 tokens; "
            "a larger --device-memory, or --ring, brings them once");
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
