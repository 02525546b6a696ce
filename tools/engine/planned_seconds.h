// What passes of a loaded model take, as guessing weighs them before it has seen any: by the plan that placed the
// model, or, where nothing streams and so nothing was planned, by rates that are measured in a few hundredths of a
// second.
#pragma once

#include "draft/control/pass_curve.h"
#include "tools/engine/engine_model.h"

namespace slipstream::tools {

/// Of the engine model, which is loaded and outlives the result.
[[nodiscard]] draft::PlannedSeconds target_planned_seconds(const EngineModel& engine);

/// Of a small model, loaded on the device of `engine`, with all it needs resident; both outlive the result.
[[nodiscard]] draft::PlannedSeconds resident_planned_seconds(const ModelFiles& files, DType kv_dtype,
                                                             WeightRounding rounding, const EngineModel& engine);

}  // namespace slipstream::tools
