// What passes of a loaded model take, as guessing weighs them before it has seen any: by the plan that placed the
// model, or, where nothing streams and so nothing was planned, by rates that are measured in a few hundredths of a
// second.
#pragma once

#include <cstdint>

#include "draft/control/pass_curve.h"
#include "tools/engine/loaded_model.h"

namespace slipstream::tools {

/// Of the model model, which is loaded and outlives the result.
[[nodiscard]] draft::PlannedSeconds target_planned_seconds(const LoadedModel& model);

/// Of a target over a view of its KV: with all of it resident on the devices that share it.
[[nodiscard]] draft::PlannedSeconds view_planned_seconds(const LoadedModel& model);

/// A model of `weights` with all of it on its devices, whose rates are measured, behind up to `context_tokens`.
[[nodiscard]] SplitPlan resident_plan(const PlacedModel& model, std::int64_t context_tokens);

/// Of a small model, loaded on the device of `model`, with all it needs resident; both outlive the result.
[[nodiscard]] draft::PlannedSeconds resident_planned_seconds(const ModelFiles& files, DType kv_dtype,
                                                             WeightRounding rounding, const PlacedModel& model);

}  // namespace slipstream::tools
