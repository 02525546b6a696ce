// Drafting for a generation loop, made from options: the draft model (found, loaded and checked), the drafter over it,
// and the verifier.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "draft/drafter.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/verify.h"
#include "runtime/pass/forward.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/loaded_model.h"

namespace slipstream::tools {

/// A loaded draft model: its files, and its weights on the target's device.
struct EngineDraftModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<Model> model;
};

/// Returns the path of the draft model; empty if no source needs one, or if the target has none of its own.
[[nodiscard]] std::filesystem::path draft_model_path(const DraftSettings& draft, const OpenedModel& target);

/// Loads the draft model: that of --draft-model, or the bundled one for the bundled target, and checks its vocabulary
/// against the target's. Returns no value if no source needs it, or if the sources are `auto` and there is none. Throws
/// RequestError if `model` was requested by name and there is none, or if the vocabularies differ; OutOfBudget if its
/// files are larger than the free memory.
[[nodiscard]] std::optional<EngineDraftModel> load_draft_model(const DraftSettings& draft, const PlacedModel& target,
                                                               const EngineCallbacks& callbacks);

/// The proposer of one loop, with its learnt state.
class EngineDrafter {
public:
    /// All arguments, and what the callbacks refer to, must outlive this object; `draft_model` may be null.
    /// `target_model` is the whole target; null if it is not loaded yet or is split: tables that are computed from it
    /// must then be on disk. Of `auto`, sources that cannot be used here, or would cost more than they can gain, are
    /// left out and reported as details. May build tables. Throws Interrupted, and what make_drafter() throws.
    EngineDrafter(const DraftSettings& draft, const PlacedModel& target, const Model* target_model,
                  const EngineDraftModel* draft_model, const SamplerOptions& sampling,
                  const EngineCallbacks& callbacks);

    [[nodiscard]] Proposer& proposer();
    /// Most nodes of a pass, for the loop; 1 if there are no sources.
    [[nodiscard]] std::int64_t budget() const { return drafter_ ? budget_ : 1; }
    [[nodiscard]] bool guesses() const { return drafter_ != nullptr; }
    /// Distributions that the draft tokens were drawn from, for distribution-exact sampling (E3); null if they are
    /// point masses.
    [[nodiscard]] const draft::DraftDistributions* distributions() const;
    /// Call when the target is loaded: draft tokens are weighed by the planned time of its passes.
    void plan_passes(const LoadedModel& target);
    /// What the target must provide for a KV view that is drafted over; no value if there is none.
    [[nodiscard]] std::optional<ViewNeeds> view_needs() const;
    /// Gives the drafter the passes over that view. `target` is loaded; both must outlive this object.
    void attach_view(const LoadedModel& target, ViewPasses& passes);
    [[nodiscard]] std::vector<draft::SourceFigures> figures() const;
    /// Forgets what was learnt.
    void reset();
    /// Drafts for these sampling options of the target from now on (Drafter::set_sampling()).
    void resample(const SamplerOptions& sampling);
    /// Saves what was learnt in the folder of --tables. A failure is only a note, since the text is complete.
    void save() const;
    /// Reports as a detail how often drafting paused and why; nothing if it never did.
    void report_backoff() const;

private:
    std::int64_t budget_;
    EngineCallbacks callbacks_;
    NoProposer nothing_;
    draft::DraftOptions made_with_;
    std::int64_t vocab_;
    std::unique_ptr<draft::Drafter> drafter_;  // null: plain decoding
};

/// Makes the verifier of --verify. `sampler` must outlive it, and so must what `drafter` drafts with.
[[nodiscard]] std::unique_ptr<Verifier> make_verifier(VerifyRule rule, Sampler& sampler, std::int64_t vocab,
                                                      const EngineDrafter& drafter);

}  // namespace slipstream::tools
