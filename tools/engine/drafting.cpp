#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "draft/models/mtp_source.h"
#include "tools/engine/draft_choice.h"
#include "tools/engine/engine.h"
#include "tools/engine/engine_drafter.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

Drafting::Drafting(std::span<const DraftSettings> lists, const PlacedModel& target, const Model* whole_model,
                   const SamplerOptions& sampling, const EngineCallbacks& callbacks, CheckPasses check) {
    std::vector<DraftSettings> chosen(lists.begin(), lists.end());
    // All lists share one view: that of the first which drafts over one, by its own options. Lists that draw tokens
    // from it come before others, since for them it follows from counts alone (distribution-exact sampling, E3).
    std::optional<ViewOptions> view;
    for (const bool draws : {true, false})
        for (DraftSettings& list : chosen) {
            if ((list.options.child_rule == draft::ChildRule::Draw) != draws) continue;
            list = choose_draft(list, target, callbacks, check, view);
            if (!view && list.options.has(draft::SourceKind::Retrieval)) view = list.options.view;
        }
    // Each list was planned alone: beside what the others load, the target's LM head may stream.
    if (chosen.size() > 1)
        for (DraftSettings& draft : chosen) draft.lm_head_of_target = false;
    for (std::size_t i = 0; i < chosen.size() && model_ == nullptr; ++i)
        if (auto model = load_draft_model(chosen[i], target, callbacks))
            model_ = std::make_unique<EngineDraftModel>(std::move(*model));
    for (std::size_t i = 0; i < chosen.size() && head_ == nullptr; ++i)
        if (auto head = load_head(chosen[i], target, whole_model, host_memory(), callbacks))
            head_ = std::make_unique<EngineHead>(std::move(*head));
    for (const DraftSettings& draft : chosen)
        drafters_.push_back(std::make_unique<EngineDrafter>(draft, target, whole_model, model_.get(), head_.get(),
                                                            sampling, callbacks));
}

Drafting::Drafting(Drafting&&) noexcept = default;
Drafting::~Drafting() = default;

std::int64_t Drafting::budget() const {
    std::int64_t most = 1;
    for (const auto& drafter : drafters_) most = std::max(most, drafter->budget());
    return most;
}

// Returns what the largest tree and the largest KV view of all drafters need. The options of the view are the same for
// all of them; only its numbers of nodes differ.
RunNeeds Drafting::needs(std::int64_t text_tokens, CheckPasses check) const {
    RunNeeds needs = generation_needs(budget(), text_tokens, check);
    for (const auto& drafter : drafters_) {
        if (drafter->needs_hidden()) needs.hidden_rows = draft::hidden_rows(budget());
        const std::optional<ViewNeeds> view = drafter->view_needs();
        if (view && (!needs.view || needs.view->max_nodes < view->max_nodes)) needs.view = view;
    }
    return needs;
}

void Drafting::attach(const LoadedModel& target, ModelRunner& runner) {
    if (head_ != nullptr) lend_lm_head(*head_, target);
    for (const auto& drafter : drafters_) {
        if (drafter->view_needs()) drafter->attach_view(target, *runner.view());
        if (drafter->needs_hidden()) drafter->attach_hidden(*runner.hidden());
        drafter->plan_passes(target);
    }
}

}  // namespace slipstream::tools
