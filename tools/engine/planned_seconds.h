// Planned time of the passes of a loaded model, for drafting before it has measured any. It comes from the plan that
// placed the model, or, if nothing streams and so nothing was planned, from rates that are measured in some hundredths
// of a second.
#pragma once

#include <cstdint>

#include "draft/control/pass_curve.h"
#include "runtime/model/weight_source.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// Returns the planned time of passes of `model`, which must outlive the result.
[[nodiscard]] draft::PlannedSeconds target_planned_seconds(const LoadedModel& model);

/// Returns the planned time of passes of `model` over a KV view, computed as if everything were resident on the devices
/// that share the model, also if KV streams. `model` must outlive the result.
[[nodiscard]] draft::PlannedSeconds view_planned_seconds(const LoadedModel& model);

/// Returns a plan of `model` as if everything fitted on its devices, for a context of up to `context_tokens`; measures
/// the rates of the devices if they are unknown.
[[nodiscard]] SplitPlan resident_plan(const PlacedModel& model, std::int64_t context_tokens);

/// Returns the planned time of passes of the model of `source`, a small one, as if all of it were resident on the first
/// device of `model`. `source` and `model` must outlive the result.
[[nodiscard]] draft::PlannedSeconds resident_planned_seconds(const WeightSource& source, DType kv_dtype,
                                                             WeightRounding rounding, const PlacedModel& model);

}  // namespace slipstream::tools
