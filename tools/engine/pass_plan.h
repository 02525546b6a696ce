// What passes of a loaded model take, as guessing weighs them before it has seen any: by the plan that placed the
// model, or, where nothing streams and so nothing was planned, by rates that are measured in a few hundredths of a
// second.
#pragma once

#include "draft/control/pass_curve.h"
#include "tools/engine/served_model.h"

namespace slipstream::tools {

/// Of the served model, which is loaded and outlives the result.
[[nodiscard]] draft::PassPlan target_pass_plan(const ServedModel& served);

/// Of a small model, loaded on the device of `served`, with all it needs resident; both outlive the result.
[[nodiscard]] draft::PassPlan resident_pass_plan(const ModelFiles& files, DType kv_dtype, WeightRounding rounding,
                                                 const ServedModel& served);

}  // namespace slipstream::tools
