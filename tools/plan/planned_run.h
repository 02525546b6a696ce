// How a model would run on this machine. Drafting is constructed as `generate` constructs it, so that `plan` counts the
// same bytes.
#pragma once

#include "tools/options/command.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

/// Sets request.run if the model is a file and runs on this machine, either on several devices or on one with a memory
/// budget. This may load a draft model, which is freed again. Throws UsageError if the command line has drafting
/// options and the request is for a profile or a named shape.
void plan_run(PlanRequest& request, CommandContext& context);

}  // namespace slipstream::tools
