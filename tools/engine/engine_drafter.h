// The draft model of a target, and its own MTP head: found, loaded and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "kernels/workspace.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "runtime/model/proposing_head.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"

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

/// A loaded head: its tensors in the target's files, and its weights on the first device.
struct EngineHead {
    std::unique_ptr<HeadSource> source;
    std::unique_ptr<ProposingHead> head;    // without an LM head until the target is loaded, if it uses the target's
    draft::PlannedSeconds planned_seconds;  // of the head's passes
};

/// Opens the MTP head in the target's files for the source `mtp`; null if that is not among the
/// sources. If it cannot be used (the files have none, or a damaged one; it has a type without kernels on the first
/// device), throws RequestError, FormatError or Unsupported; of `auto`, removes the source and reports why as a detail.
[[nodiscard]] std::unique_ptr<HeadSource> open_target_head(DraftSettings& draft, const PlacedModel& target,
                                                           const EngineCallbacks& callbacks);

/// Returns the bytes of device memory that the head and its source take: weights, passes and KV.
[[nodiscard]] std::size_t head_bytes(const HeadSource& head, const draft::DraftOptions& options,
                                     std::int64_t text_tokens, ProposingHead::LmHead lm_head);

/// Returns the bytes by which the ops of the head's passes enlarge the workspace of a target whose ops need
/// `of_target`.
[[nodiscard]] std::size_t head_workspace_bytes(const HeadSource& head, const draft::DraftOptions& options,
                                               Device& device, const WorkspaceShapes& of_target);

/// Returns the bytes of page-locked host memory that the passes of the head take on `device`; 0 if it shares the host's
/// memory.
[[nodiscard]] std::size_t head_pass_bytes(const HeadSource& head, const draft::DraftOptions& options,
                                          const Device& device);

/// Returns the bytes of host memory for the hidden states of `target` that are kept for its head.
[[nodiscard]] std::size_t head_tail_bytes(const ModelConfig& target, const draft::DraftOptions& options);

/// Returns the bytes of host memory that the head takes: of a CPU device head_bytes(), of a GPU what is page-locked for
/// its passes; head_tail_bytes(), and an embedding of its own.
[[nodiscard]] std::size_t head_host_bytes(const HeadSource& head, const draft::DraftOptions& options,
                                          const PlacedModel& target, ProposingHead::LmHead lm_head);

/// Loads the head for the source `mtp`; no value if that is not among the sources. If it has no LM head of its own:
/// with `whole_model`, the loaded target, it uses the target's; without, it has a copy, since the target's may stream
/// or be split; or, with draft.lm_head_of_target, none until attach_lm_head(). If it takes more than the free memory of
/// `host`, throws OutOfBudget; of `auto`, removes the source and reports why as a detail. Throws what
/// open_target_head() throws, too.
[[nodiscard]] std::optional<EngineHead> load_head(DraftSettings& draft, const PlacedModel& target,
                                                  const Model* whole_model, const HostMemory& host,
                                                  const EngineCallbacks& callbacks);

/// Gives a head that has no LM head that of the loaded target. Returns false if that is not whole and resident on the
/// head's device: the head then cannot be used.
[[nodiscard]] bool attach_lm_head(EngineHead& head, const LoadedModel& target);

}  // namespace slipstream::tools
