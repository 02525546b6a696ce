// What guesses for a generation loop, from options to something that runs: the draft model found, loaded and checked,
// the drafter over it, the walk that verifies.
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

/// A draft model, ready: its files, and its weights on the target's device.
struct EngineDraftModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<Model> model;
};

/// Where the draft model of these settings lies; empty where no source asks for one, or the target has none of its own.
[[nodiscard]] std::filesystem::path draft_model_path(const DraftSettings& draft, const OpenedModel& target);

/// The draft model of these settings, loaded, its vocabulary checked against the target's: the one of --draft-model, or
/// the bundled one for the bundled target. Nothing where no source asks for it, or where `auto` finds none. Throws
/// RequestError where `model` was asked for by name and there is none, or where the vocabularies differ.
[[nodiscard]] std::optional<EngineDraftModel> load_draft_model(const DraftSettings& draft, const PlacedModel& target,
                                                               const EngineCallbacks& callbacks);

/// The proposer of one loop, and what it learnt.
class EngineDrafter {
public:
    /// All of them outlive this, and what the callbacks touch; `draft_model` may be null. `target_model` is
    /// the whole target; null if it is not loaded yet or split: tables out of it must be on disk then. Sources of
    /// `auto` that cannot serve here, or would cost more than they can pay back, are left out: told as details. May
    /// build tables; throws Interrupted, and what make_drafter() throws.
    EngineDrafter(const DraftSettings& draft, const PlacedModel& target, const Model* target_model,
                  const EngineDraftModel* draft_model, const SamplerOptions& sampling,
                  const EngineCallbacks& callbacks);

    [[nodiscard]] Proposer& proposer();
    /// Most nodes of a pass, for the loop; 1 where nothing guesses.
    [[nodiscard]] std::int64_t budget() const { return drafter_ ? budget_ : 1; }
    [[nodiscard]] bool guesses() const { return drafter_ != nullptr; }
    /// What its guesses were drawn from, for classical sampling; null where they are point masses.
    [[nodiscard]] const draft::DraftDistributions* distributions() const;
    /// The target is loaded: guesses are weighed by what its passes will take.
    void plan_passes(const LoadedModel& target);
    /// The view of the target's KV that it guesses over; nothing where it does not.
    [[nodiscard]] std::optional<ViewNeeds> view_needs() const;
    /// Passes over that view are there, and so is the target; both outlive this.
    void attach_view(const LoadedModel& target, ViewPasses& passes);
    [[nodiscard]] std::vector<draft::SourceFigures> figures() const;
    /// Forgets what was learnt.
    void reset();
    /// Drafts for other sampling options of the target from now on (Drafter::set_sampling).
    void resample(const SamplerOptions& sampling);
    /// Keeps what was learnt where --tables says; a failure is a note, since the text is there.
    void save() const;
    /// Tells how often drafting paused and why, as a detail; nothing where it never did.
    void report_backoff() const;

private:
    std::int64_t budget_;
    EngineCallbacks callbacks_;
    NoProposer nothing_;
    draft::DraftOptions made_with_;
    std::int64_t vocab_;
    std::unique_ptr<draft::Drafter> drafter_;  // null: plain decoding
};

/// The walk that --verify asks for. `sampler` outlives it, and so does what `drafter` guesses with.
[[nodiscard]] std::unique_ptr<Verifier> make_verifier(VerifyRule rule, Sampler& sampler, std::int64_t vocab,
                                                      const EngineDrafter& drafter);

}  // namespace slipstream::tools
