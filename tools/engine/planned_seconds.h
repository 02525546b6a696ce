// Planned time of the passes of a loaded model, for drafting before it has measured any. It comes from the plan that
// placed the model, or, if nothing streams and so nothing was planned, from rates that are measured in some hundredths
// of a second.
#pragma once

#include <cstdint>

#include "draft/control/pass_curve.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// Returns the planned time of passes of `model`, which must outlive the result.
[[nodiscard]] draft::PlannedSeconds target_planned_seconds(const LoadedModel& model);

/// Returns the planned time of passes over a KV view: with everything resident on the devices that share the model.
[[nodiscard]] draft::PlannedSeconds view_planned_seconds(const LoadedModel& model);

/// Returns a plan of `model` with everything resident on its devices and a context of up to `context_tokens`; measures
/// their rates if they are unknown.
[[nodiscard]] SplitPlan resident_plan(const PlacedModel& model, std::int64_t context_tokens);

/// Returns the planned time of passes of a small model of `files`, with everything resident on the first device of
/// `model`. Both must outlive the result.
[[nodiscard]] draft::PlannedSeconds resident_planned_seconds(const ModelFiles& files, DType kv_dtype,
                                                             WeightRounding rounding, const PlacedModel& model);

}  // namespace slipstream::tools
