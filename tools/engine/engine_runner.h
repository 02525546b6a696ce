// Makes the runner of a loaded model: the shards of the devices, the sums between them, and the planned residency.
#pragma once

#include <memory>

#include "runtime/ranks/model_runner.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/loaded_model.h"

namespace slipstream::tools {

/// `model` must outlive the runner; if it is budgeted, it must have been loaded for `needs`. Reports a note if the
/// system refused to lock host memory. Throws OutOfBudget.
[[nodiscard]] std::unique_ptr<ModelRunner> make_runner(const LoadedModel& model, const RunNeeds& needs,
                                                       const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
