#include "tools/plan/planned_run.h"

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/workspace.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/usage_error.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

// `assumes_view`: --assume plans a view, whose type --view-type gives. `is_file`: --tables may have counts of experts.
void refuse_draft_options(const Settings& settings, bool assumes_view, bool is_file) {
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        if (const Setting* setting = settings.on_command_line(option.name);
            setting != nullptr && !(assumes_view && option.name == "view-type") &&
            !(is_file && option.name == "tables"))
            throw UsageError(
                fmt::format("{}: speculative decoding is planned only for a model file on one device of this machine; "
                            "leave the option out",
                            setting->where));
}

// Returns the device memory that is taken beside the target model: by a draft model, and by the workspace of passes up
// to `limits`. The workspace is counted even if it does not fit, so that the plan can say how much memory is missing.
TakenMemory taken_beside(const PlacedModel& placed, std::size_t index, const ForwardLimits& limits) {
    Device& device = *placed.devices()[index].device;
    const WorkspaceShapes shapes = Forward::workspace_shapes(placed.shard_config(index), placed.kv_dtype(), limits);
    TakenMemory before = taken_memory(device.budget());
    try {
        reserve_workspace(device, shapes);
        return taken_memory(device.budget());
    } catch (const OutOfBudget&) {
        before.workspace_bytes += workspace_bytes(device, shapes);
        return before;
    }
}

}  // namespace

void plan_run(PlanRequest& request, CommandContext& context) {
    const Settings& settings = context.settings;
    if (!request.model.files || request.profile) {
        refuse_draft_options(settings, request.assumed && !request.assumed->draft_seconds,
                             request.model.files != nullptr);
        return;
    }
    const bool several = request.hardware.n_devices > 1;
    const DraftSettings asked = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    ComputeOptions compute = compute_options(settings);
    compute.rates.measure = false;  // plan_request() has just measured if --rates asked for it
    const EngineCallbacks callbacks = console_callbacks(context);
    EngineCallbacks on_placement = callbacks;
    if (!several) {  // the plan's report describes the placement on one device, and checks the host's memory
        compute.context_tokens = request.context_tokens.value_or(request.model.config.context_tokens);
        compute.host_memory = HostMemoryCheck::No;
        on_placement = {.cancel = callbacks.cancel};
    }
    const PlacedModel placed(OpenedModel(choose_model(context)), compute, on_placement);
    if (!several && request.hardware.device_bytes == std::numeric_limits<std::size_t>::max()) {
        request.hidden_tail_bytes = hidden_tail_bytes(asked, placed, callbacks);  // everything fits, with any drafter
        return;
    }
    const Drafting drafting(std::span(&asked, 1), placed, nullptr, {}, callbacks);
    const RunNeeds needs = drafting.needs(0);
    PlannedRun run{.budget = drafting.budget(),
                   .view = needs.view,
                   .hidden_rows = needs.hidden_rows,
                   .head_pass_bytes = needs.head_pass_bytes};
    for (std::size_t i = 0; i < placed.devices().size(); ++i)
        run.taken.push_back(taken_beside(placed, i, needs.forward));
    if (several) run.parts = parts_of(placed.split(), placed.shards());
    request.run = run;
}

}  // namespace slipstream::tools
