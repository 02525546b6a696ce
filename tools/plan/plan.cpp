// slipstream plan: reports what would stay on the devices, what would stream, and how long passes would take.
#include <vector>

#include "tools/options/command.h"
#include "tools/options/settings.h"
#include "tools/plan/plan_output.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/plan_request.h"
#include "tools/plan/planned_run.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

int run_plan(CommandContext& context) {
    PlanRequest request = plan_request(context);
    plan_run(request, context);
    throw_if_interrupted();
    assume_hits(request);
    PlanReport report = make_plan_report(request);
    throw_if_interrupted();
    compare_ways(request, report);
    throw_if_interrupted();
    plan_one_more_gib(request, report);
    throw_if_interrupted();
    const std::vector<Improvement> helps = improvements(request, report);
    throw_if_interrupted();
    TextOutput(std::nullopt)
        .write(context.settings.flag("json")
                   ? plan_json(request, report, helps)
                   : plan_text(request, report, helps,
                               context.console.verbose() ? PlanDetail::Formulas : PlanDetail::Figures,
                               stdout_columns()));
    return 0;
}

}  // namespace

CommandSpec plan_command() {
    return {
        .name = "plan",
        .summary = "What would stay on a device, what would stream, and how fast that would be",
        .details =
            "For this machine, which is measured in a second, or for a named one (--profile); for a model file, or a "
            "shape (--shape). What does not fit on the device streams from pinned memory once per pass; speculative "
            "decoding puts draft tokens into the same pass. Under --device-memory the plan is for the passes of "
            "generate with the same options. With --profile, --link-gib-s gives the speed of its links. Only headers "
            "are read, and the draft model if one is used.",
        .example = "slipstream plan --profile 1x4090 --shape llama-70b --quant Q4_K_M",
        .options = plan_options(),
        .run = run_plan};
}

}  // namespace slipstream::tools
