// The draft model of a target: found, loaded and checked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// A loaded draft model: its files, and its weights on the target's device.
struct EngineDraftModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<Model> model;
    draft::PlannedSeconds planned_seconds;  // of the draft model's passes; weights and KV resident
};

/// Returns the path of the draft model; empty if no source needs one, or if the target has none of its own.
[[nodiscard]] std::filesystem::path draft_model_path(const DraftSettings& draft, const OpenedModel& target);

/// Loads the draft model: that of --draft-model, or the bundled one for the bundled target, and checks its vocabulary
/// against the target's. Returns no value if no source needs it, or if the sources are `auto` and there is none. Throws
/// RequestError if `model` was requested by name and there is none, or if the vocabularies differ; OutOfBudget if its
/// files are larger than the free memory.
[[nodiscard]] std::optional<EngineDraftModel> load_draft_model(const DraftSettings& draft, const PlacedModel& target,
                                                               const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
