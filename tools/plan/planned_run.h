// How a model would run here: what guesses beside it, found out by making that, as generating does. So `plan` counts
// the same bytes.
#pragma once

#include "tools/options/command.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

/// Sets request.run where the model is a file and a device of this machine has a budget; then a draft model is loaded
/// and let go again. UsageError where options about guessing stand beside a profile or a shape.
void plan_run(PlanRequest& request, CommandContext& context);

}  // namespace slipstream::tools
