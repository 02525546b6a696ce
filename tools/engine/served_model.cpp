#include "tools/engine/served_model.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/cuda_device.h"
#include "tools/cli/console.h"
#include "tools/cli/signals.h"
#include "tools/engine/host.h"
#include "tools/engine/measured_rates.h"

namespace slipstream::tools {

ComputeOptions compute_options(const CommandContext& context) {
    const Settings& settings = context.settings;
    ComputeOptions options{.context_tokens = context_setting(settings),
                           .kv_dtype = kv_type_setting(settings),
                           .n_threads = thread_setting(settings),
                           .device = choose_device(settings),
                           .offload = {}};
    options.offload = offload_options(settings, options.device.kind());
    return options;
}

ServedModel open_model(const std::filesystem::path& path) {
    ServedModel served;
    served.path = path;
    served.files = ModelFiles::open(path);
    return served;
}

KvPlacement ServedModel::kv_placement() const {
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

void make_device(ServedModel& served, const ComputeOptions& options, CommandContext& context) {
    const ModelConfig& config = served.files->config();
    served.kv_dtype = options.kv_dtype.value_or(config.kv_dtype);
    const ContextChoice choice =
        choose_context(config, served.kv_dtype, options.context_tokens, served.files->total_bytes(), host_memory());
    served.context_tokens = choice.tokens;
    if (choice.reduced) context.console.note(reduction_note(config, choice.tokens));
    if (choice.tokens > config.context_tokens)
        context.console.note(fmt::format("the model was made for {}; with --ctx {} it may lose its way beyond them",
                                         counted(config.context_tokens, "token"), choice.tokens));
    served.n_threads = options.n_threads;
    served.device = make_compute_device(
        options.device,
        {.n_threads = options.n_threads,
         .memory_bytes = options.offload.device_memory,
         .link_bytes_per_second = options.offload.link_bytes_per_second,
         .on_announcement = [&console = context.console](std::string_view line) { console.note(line); }});
    served.budgeted = served.device->budget().limit_bytes() != Budget::kUnlimited;
    if (options.device.card)
        context.console.note(
            fmt::format("{} computes ({}); this backend was tested in emulation only so far: where a "
                        "text looks wrong compare --devices cpu",
                        options.device.name(), served.device->instruction_form()));
    if (const auto* card = dynamic_cast<const CudaDevice*>(served.device.get());
        card != nullptr && !card->no_blas().empty())
        context.console.note(card->no_blas());
    const Settings& settings = context.settings;
    context.console.detail(settings.describe("devices", options.device.name(), options.device.why));
    context.console.detail(settings.describe("threads", fmt::format("{}", options.n_threads),
                                             "physical cores, or what the control group allows"));
    context.console.detail(settings.describe("ctx", fmt::format("{}", choice.tokens),
                                             choice.reduced ? "what fits into memory" : "the model's own"));
    context.console.detail(settings.describe("kv-type", dtype_name(served.kv_dtype), "the model's own"));
}

namespace {

// Null where the CPU computes.
Device* cuda_device(const ServedModel& served) {
    return served.device->kind() == DeviceKind::Cuda ? served.device.get() : nullptr;
}

// What is resident, and the arena for what is not.
void make_plan(ServedModel& served, const ComputeOptions& options, const RunNeeds& needs, const ModelWeights& weights) {
    const ModelConfig& config = served.files->config();
    const KvShape kv{config.n_kv_heads, config.head_dim, served.kv_dtype};
    reserve_workspace(*served.device, Forward::workspace_shapes(config, kv, needs.forward));
    const std::size_t plain = Forward::device_bytes(config, needs.forward, Forward::Streaming::No);
    const std::vector<std::int64_t> no_chunks(static_cast<std::size_t>(config.n_layers), 0);
    const std::size_t scratch =
        static_cast<std::size_t>(2 * config.n_layers * needs.scratch_nodes) * kv.scratch_row_bytes();
    ModelPlanRequest request{
        .config = &config,
        .weights = &weights,
        .kv_dtype = served.kv_dtype,
        .context_tokens = served.text_tokens,
        .budget_bytes = served.device->budget().limit_bytes(),
        .fixed_bytes = served.device->budget().used_bytes() + needs.other_bytes + plain + scratch +
                       Model::small_tensor_bytes(weights),
        .kv_tail_bytes =
            KvCache::device_bytes(kv, config.n_layers, served.text_tokens, needs.scratch_nodes, no_chunks) - scratch,
        .streaming_bytes = Forward::device_bytes(config, needs.forward, Forward::Streaming::Yes) - plain,
        .ring_bytes = options.offload.ring.value_or(0),
        .link_bytes_per_second = 1.0,  // any: nothing is known of speeds yet
        .pass_tokens = 1};
    served.plan = std::make_unique<ModelPlan>(request);
    if (served.plan->residency().ring_bytes == 0) return;
    // Something streams: what is best depends on what the machine takes for it.
    const MachineRates machine = measure_rates({.config = &config,
                                                .weights = &weights,
                                                .kv_dtype = served.kv_dtype,
                                                .n_threads = served.n_threads,
                                                .card = cuda_device(served)});
    request.rates = machine.rates;
    request.link_bytes_per_second = options.offload.link_bytes_per_second > 0.0
                                        ? std::min(options.offload.link_bytes_per_second, machine.copy_bytes_per_second)
                                        : machine.copy_bytes_per_second;
    request.memory_bytes_per_second = machine.memory_bytes_per_second;
    request.host_bytes_per_copied_byte = machine.host_bytes_per_copied_byte;
    request.pass_tokens = options.offload.expect_tokens;
    served.plan = std::make_unique<ModelPlan>(request);
    if (served.plan->residency().ring_bytes > 0)
        served.arena = std::make_unique<PinnedArena>(
            PinnedArenaOptions{.limit_bytes = options.offload.host_memory, .device = served.device.get()});
}

// Which items stream.
WeightPlacement weight_placement(const ServedModel& served) {
    if (!served.plan) return {};
    WeightPlacement placement{.max_item_bytes = served.plan->max_item_bytes(), .arena = served.arena.get()};
    const std::vector<PassBlock>& blocks = served.plan->blocks();
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (blocks[i].tag == PlanTag::Weights)
            placement.streams.push_back(served.plan->residency().resident_bytes[i] < blocks[i].bytes);
    return placement;
}

}  // namespace

void load_model(ServedModel& served, const ComputeOptions& options, const RunNeeds& needs, CommandContext& context) {
    const auto began = std::chrono::steady_clock::now();
    const ModelConfig& config = served.files->config();
    served.text_tokens = needs.text_tokens > 0 ? needs.text_tokens : served.context_tokens;
    if (served.budgeted) make_plan(served, options, needs, served.files->weights());
    {
        ProgressBar bar(context.console, "loading");
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            throw_if_interrupted();
            bar.update(static_cast<double>(done), static_cast<double>(total),
                       fmt::format("{} of {}", size_text(done), size_text(total)));
        };
        served.model = std::make_unique<Model>(*served.files, *served.device,
                                               LoadOptions{.context_tokens = served.context_tokens,
                                                           .kv_dtype = served.kv_dtype,
                                                           .placement = weight_placement(served),
                                                           .on_progress = on_progress});
    }
    served.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (const auto* cpu = dynamic_cast<const CpuDevice*>(served.device.get());
        cpu != nullptr && !cpu->huge_pages_come_quickly())
        context.console.detail("the system gives huge pages slowly (fragmented memory): the weights lie on small ones");
    context.console.detail(
        fmt::format("{}: {} {}, {}, {} kernels, {} of KV cache, loaded in {:.2f} s", served.path.string(),
                    served.files->format(), architecture_name(config.architecture),
                    size_text(served.files->total_bytes()), served.device->instruction_form(),
                    size_text(kv_bytes(config, served.kv_dtype, served.context_tokens)), served.load_seconds));
    if (served.arena && !served.arena->lock_refusal().empty()) context.console.note(served.arena->lock_refusal());
    if (served.ring_bytes() > 0) {
        const ResidencyPlan& plan = served.plan->residency();
        context.console.note(fmt::format(
            "{}: {} on the device, {} of weights and {} of KV at full context stream in each pass ({} of ring)",
            regime_name(plan.regime), size_text(plan.device_bytes), size_text(plan.streamed_weights_bytes),
            size_text(plan.streamed_kv_bytes), size_text(plan.ring_bytes)));
        if (!served.plan->prompts_read_weights_once())
            context.console.note(
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
