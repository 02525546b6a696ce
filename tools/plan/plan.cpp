// slipstream plan: what of a model would stay on a device, what would stream, and what passes would then take.
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/file_output.h"
#include "tools/cli/settings.h"
#include "tools/cli/signals.h"
#include "tools/plan/plan_answer.h"
#include "tools/plan/plan_question.h"
#include "tools/plan/plan_report.h"

namespace slipstream::tools {

namespace {

int run_plan(CommandContext& context) {
    const PlanQuestion question = plan_question(context);
    throw_if_interrupted();
    const PlanAnswer answer = answer_plan(question);
    throw_if_interrupted();
    const std::vector<Improvement> helps = improvements(question, answer);
    throw_if_interrupted();
    TextOutput(std::nullopt)
        .write(context.settings.flag("json") ? plan_json_report(question, answer, helps)
                                             : plan_text_report(question, answer, helps));
    return 0;
}

}  // namespace

CommandSpec plan_command() {
    return {.name = "plan",
            .summary = "What would stay on a device, what would stream, and how fast that would be",
            .details =
                "For this machine, which is measured in a second, or for one that is only named; for a model "
                "file, or a shape. Reads headers only.",
            .example = "slipstream plan --profile 1x4090 --shape llama-70b --quant Q4_K_M",
            .options = plan_options(),
            .run = run_plan};
}

}  // namespace slipstream::tools
