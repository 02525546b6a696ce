// From a loaded model to what runs it: the devices' shards, the sums between them, and what the plan says is resident.
#pragma once

#include <memory>

#include "runtime/ranks/model_runner.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/loaded_model.h"

namespace slipstream::tools {

/// `model` was loaded for `needs` if it is budgeted, and outlives the runner. Notes if the system has refused to lock
/// host memory. Throws OutOfBudget.
[[nodiscard]] std::unique_ptr<ModelRunner> make_runner(const LoadedModel& model, const RunNeeds& needs,
                                                       const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
