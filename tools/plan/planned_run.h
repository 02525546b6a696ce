// How a model would run on this machine. Its drafting is made, as `generate` makes it, so that `plan` counts the same
// bytes.
#pragma once

#include "tools/options/command.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

/// Sets request.run if the model is a file and a device of this machine has a budget; this may load a draft model,
/// which is freed again. Throws UsageError if drafting options are given together with a profile or a shape.
void plan_run(PlanRequest& request, CommandContext& context);

}  // namespace slipstream::tools
