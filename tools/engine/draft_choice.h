// What guessing is given where a device's memory is short: how large trees may be, how much of the text a draft model
// keeps, and whether `auto` loads one at all, whose bytes the target then streams. By the plan's arithmetic alone,
// before anything is loaded.
#pragma once

#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

/// `draft` with what `auto` leaves open decided for `target` and the budgets of its devices. A line says what is left
/// out or made smaller. May measure the machine (target.rates()). Throws what opening the draft model throws,
/// OutOfBudget where a budget that was given does not fit and a smaller one would.
[[nodiscard]] DraftSettings choose_draft(const DraftSettings& draft, const PlacedModel& target,
                                         const EngineCallbacks& callbacks, CheckPasses check = CheckPasses::No);

}  // namespace slipstream::tools
