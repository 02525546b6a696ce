#include "tools/engine/engine_model.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "tools/engine/context_choice.h"
#include "tools/machine/host.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/terminal/amounts.h"

namespace slipstream::tools {

EngineModel open_model(const std::filesystem::path& path) {
    EngineModel engine;
    engine.path = path;
    engine.files = ModelFiles::open(path);
    return engine;
}

KvPlacement EngineModel::kv_placement() const {
    KvPlacement placement{.resident_chunks = {}, .arena = arena.get()};
    if (!plan) return placement;
    const std::vector<PassBlock>& blocks = plan->blocks();
    bool streams = false;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i].tag != PlanTag::Kv) continue;
        const std::size_t resident = plan->residency().resident_bytes[i];
        streams = streams || resident < blocks[i].bytes;
        placement.resident_chunks.push_back(static_cast<std::int64_t>(resident / blocks[i].unit_bytes));
    }
    if (!streams) placement.resident_chunks.clear();
    return placement;
}

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
    engine.n_threads = options.n_threads;
    engine.device = make_compute_device(
        options.device, {.n_threads = options.n_threads,
                         .memory_bytes = options.offload.device_memory,
                         .link_bytes_per_second = options.offload.link_bytes_per_second,
                         .on_announcement = [&callbacks](std::string_view line) { callbacks.note(line); }});
    engine.budgeted = engine.device->budget().limit_bytes() != Budget::kUnlimited;
    if (options.device.card)
        callbacks.note(
            fmt::format("{} computes ({}); this backend was tested in emulation only so far: where a "
                        "text looks wrong compare --devices cpu",
                        options.device.name(), engine.device->instruction_form()));
    if (const auto* card = dynamic_cast<const CudaDevice*>(engine.device.get());
        card != nullptr && !card->no_blas().empty())
        callbacks.note(card->no_blas());
    callbacks.choice("devices", options.device.name(), options.device.why);
    callbacks.choice("threads", fmt::format("{}", options.n_threads),
                     "physical cores, or what the control group allows");
    callbacks.choice("ctx", fmt::format("{}", choice.tokens),
                     choice.reduced ? "what fits into memory" : "the model's own");
    callbacks.choice("kv-type", dtype_name(engine.kv_dtype), "the model's own");
}

namespace {

// Null where the CPU computes.
Device* cuda_device(const EngineModel& engine) {
    return engine.device->kind() == DeviceKind::Cuda ? engine.device.get() : nullptr;
}

// What is resident, and the arena for what is not.
void make_plan(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs, const ModelWeights& weights) {
    const ModelConfig& config = engine.files->config();
    const KvShape kv{config.n_kv_heads, config.head_dim, engine.kv_dtype};
    reserve_workspace(*engine.device, Forward::workspace_shapes(config, kv, needs.forward));
    ModelPlanRequest request = memory_request({.config = &config,
                                               .weights = &weights,
                                               .kv_dtype = engine.kv_dtype,
                                               .text_tokens = engine.text_tokens,
                                               .needs = needs,
                                               .taken_bytes = engine.device->budget().used_bytes()});
    request.budget_bytes = engine.device->budget().limit_bytes();
    request.ring_bytes = options.offload.ring.value_or(0);
    request.link_bytes_per_second = 1.0;  // any: nothing is known of speeds yet
    request.pass_tokens = 1;
    engine.plan = std::make_unique<ModelPlan>(request);
    if (engine.plan->residency().ring_bytes == 0) return;
    // Something streams: what is best depends on what the machine takes for it.
    set_rates(request, machine_rates(engine, weights), options.offload);
    request.pass_tokens = options.offload.expect_tokens;
    engine.plan = std::make_unique<ModelPlan>(request);
    if (engine.plan->residency().ring_bytes > 0)
        engine.arena = std::make_unique<PinnedArena>(
            PinnedArenaOptions{.limit_bytes = options.offload.host_memory, .device = engine.device.get()});
}

// Which items stream.
WeightPlacement weight_placement(const EngineModel& engine) {
    if (!engine.plan) return {};
    WeightPlacement placement{.max_item_bytes = engine.plan->max_item_bytes(), .arena = engine.arena.get()};
    const std::vector<PassBlock>& blocks = engine.plan->blocks();
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (blocks[i].tag == PlanTag::Weights)
            placement.streams.push_back(engine.plan->residency().resident_bytes[i] < blocks[i].bytes);
    return placement;
}

}  // namespace

const MachineRates& machine_rates(EngineModel& engine, const ModelWeights& weights) {
    if (!engine.rates)
        engine.rates = measure_rates({.config = &engine.files->config(),
                                      .weights = &weights,
                                      .kv_dtype = engine.kv_dtype,
                                      .n_threads = engine.n_threads,
                                      .card = cuda_device(engine)});
    return *engine.rates;
}

void set_rates(ModelPlanRequest& request, const MachineRates& machine, const OffloadOptions& offload) {
    request.rates = machine.rates;
    request.link_bytes_per_second = offload.link_bytes_per_second > 0.0
                                        ? std::min(offload.link_bytes_per_second, machine.copy_bytes_per_second)
                                        : machine.copy_bytes_per_second;
    request.memory_bytes_per_second = machine.memory_bytes_per_second;
    request.host_bytes_per_copied_byte = machine.host_bytes_per_copied_byte;
}

void load_model(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs,
                const EngineCallbacks& callbacks) {
    const auto began = std::chrono::steady_clock::now();
    const ModelConfig& config = engine.files->config();
    engine.text_tokens = needs.text_tokens > 0 ? needs.text_tokens : engine.context_tokens;
    if (engine.budgeted) make_plan(engine, options, needs, engine.files->weights());
    {
        const WorkProgress progress = callbacks.work("loading");
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            progress(static_cast<double>(done), static_cast<double>(total),
                     fmt::format("{} of {}", size_text(done), size_text(total)));
        };
        engine.model = std::make_unique<Model>(*engine.files, *engine.device,
                                               LoadOptions{.context_tokens = engine.context_tokens,
                                                           .kv_dtype = engine.kv_dtype,
                                                           .placement = weight_placement(engine),
                                                           .on_progress = on_progress});
    }
    engine.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (const auto* cpu = dynamic_cast<const CpuDevice*>(engine.device.get());
        cpu != nullptr && !cpu->huge_pages_come_quickly())
        callbacks.detail("the system gives huge pages slowly (fragmented memory): the weights lie on small ones");
    callbacks.detail(fmt::format("{}: {} {}, {}, {} kernels, {} of KV cache, loaded in {:.2f} s", engine.path.string(),
                                 engine.files->format(), architecture_name(config.architecture),
                                 size_text(engine.files->total_bytes()), engine.device->instruction_form(),
                                 size_text(kv_bytes(config, engine.kv_dtype, engine.context_tokens)),
                                 engine.load_seconds));
    if (engine.ring_bytes() > 0) {
        const ResidencyPlan& plan = engine.plan->residency();
        callbacks.note(fmt::format(
            "{}: {} on the device, {} of weights and {} of KV at full context stream in each pass ({} of ring)",
            regime_name(plan.regime), size_text(plan.device_bytes), size_text(plan.streamed_weights_bytes),
            size_text(plan.streamed_kv_bytes), size_text(plan.ring_bytes)));
        if (!engine.plan->prompts_read_weights_once())
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
