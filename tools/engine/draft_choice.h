// What guessing is given where a device's memory is short: how large trees may be, how much of the text a draft model
// keeps, and whether `auto` loads one at all, whose bytes the target then streams. By the plan's arithmetic alone,
// before anything is loaded.
#pragma once

#include <cstddef>

#include "tools/engine/engine_model.h"
#include "tools/engine/engine_options.h"

namespace slipstream::tools {

/// `draft` with what `auto` leaves open decided for `target`, which is opened and has its device, whose budget
/// `device_bytes` stands for (Budget::kUnlimited: none). A line says what is left out or made smaller. May measure the
/// machine (target.rates). Throws what opening the draft model throws, OutOfBudget where a budget that was given does
/// not fit and a smaller one would.
[[nodiscard]] DraftSettings choose_draft(const DraftSettings& draft, EngineModel& target, const ComputeOptions& options,
                                         std::size_t device_bytes, const EngineCallbacks& callbacks,
                                         CheckPasses check = CheckPasses::No);

}  // namespace slipstream::tools
