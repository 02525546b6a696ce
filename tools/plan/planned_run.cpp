#include "tools/plan/planned_run.h"

#include <cstddef>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "kernels/workspace.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/usage_error.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/draft_choice.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/engine_model.h"
#include "tools/engine/memory_plan.h"
#include "tools/machine/compute_device.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

// Counted, and more than anything here takes.
constexpr std::size_t kRoomy = std::size_t{1} << 60;

void refuse_draft_options(const Settings& settings) {
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        if (const Setting* setting = settings.on_command_line(option.name))
            throw UsageError(
                fmt::format("{}: guessing is planned for where a file runs on one device of this machine; leave it out",
                            setting->where));
}

// On one device, which is counted and has room for anything here.
EngineModel roomy_model(const PlanRequest& request, const CommandContext& context, const ComputeOptions& compute) {
    const DeviceChoice& choice = compute.devices.front();
    EngineModel engine = open_model(choose_model(context));
    engine.n_threads = engine.device_threads = thread_setting(context.settings);
    engine.kv_dtype = request.kv_dtype;
    engine.budgeted = true;
    engine.devices.push_back(
        {.choice = choice,
         .device = make_compute_device(choice, {.n_threads = engine.n_threads,
                                                .memory_bytes = choice.card ? std::nullopt : std::optional(kRoomy)}),
         .throttled_link_bytes_per_second = compute.offload.limits(0).link_bytes_per_second});
    engine.context_tokens = request.context_tokens.value_or(request.model.config.context_tokens);
    return engine;
}

// On several, as a run makes them and shares the layers out.
EngineModel shared_model(const CommandContext& context, const ComputeOptions& compute,
                         const EngineCallbacks& callbacks) {
    EngineModel engine = open_model(choose_model(context));
    make_device(engine, compute, callbacks);
    return engine;
}

}  // namespace

void plan_run(PlanRequest& request, CommandContext& context) {
    const Settings& settings = context.settings;
    if (!request.model.files || request.profile) {
        refuse_draft_options(settings);
        return;
    }
    const bool several = request.hardware.n_devices > 1;
    const bool unlimited = request.hardware.device_bytes == std::numeric_limits<std::size_t>::max();
    if (!several && unlimited) return;  // all fits, whatever guesses
    const DraftSettings asked = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    const ComputeOptions compute = compute_options(settings);
    const EngineCallbacks callbacks = console_callbacks(context);
    EngineModel engine = several ? shared_model(context, compute, callbacks) : roomy_model(request, context, compute);
    const std::size_t budget = several ? engine.device().budget().limit_bytes() : request.hardware.device_bytes;
    const DraftSettings draft = choose_draft(asked, engine, compute, budget, callbacks);
    const auto draft_model = load_draft_model(draft, engine, callbacks);
    const EngineDrafter drafter(draft, engine, draft_model ? &*draft_model : nullptr, {}, callbacks);
    const RunNeeds needs = generation_needs(drafter.budget(), 0, CheckPasses::No);
    PlannedRun run{.budget = drafter.budget(), .view = drafter.view_needs()};
    for (std::size_t i = 0; i < engine.devices.size(); ++i) {
        const ModelConfig config =
            several ? shard_config(request.model.config, engine.shards[i]) : request.model.config;
        Device& device = *engine.devices[i].device;
        reserve_workspace(device, Forward::workspace_shapes(config, request.kv_dtype, needs.forward));
        run.taken_bytes.push_back(device.budget().used_bytes());
    }
    if (several) run.parts = parts_of(engine.split, engine.shards);
    request.run = run;
}

}  // namespace slipstream::tools
