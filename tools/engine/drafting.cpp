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

namespace {

// Returns whether these chosen sources take device memory beside the target, which the plan of another list does not
// count.
bool loads_anything(const DraftSettings& draft, const PlacedModel& target) {
    return draft.options.has(draft::SourceKind::Mtp) || draft.options.has(draft::SourceKind::Retrieval) ||
           !draft_model_path(draft, target).empty();
}

// Makes the choices of each list. A list is planned alone. So its MTP head may use the target's LM head, which must
// then stay on the device, only if no other list loads anything there or makes larger passes.
std::vector<DraftSettings> choose_drafts(std::span<const DraftSettings> lists, const PlacedModel& target,
                                         const ViewAcceptance& learnt, const EngineCallbacks& callbacks,
                                         CheckPasses check) {
    using LmHead = ProposingHead::LmHead;
    std::vector<LmHead> lm_heads(lists.size(), LmHead::OfTarget);
    if (lists.size() > 1) {
        std::vector<DraftSettings> alone;  // chosen silently: the choices that are made are reported below
        for (const DraftSettings& list : lists)
            alone.push_back(choose_draft(list, target, {}, check, LmHead::OfTarget, std::nullopt, learnt));
        for (std::size_t i = 0; i < lists.size(); ++i) {
            for (std::size_t other = 0; other < lists.size(); ++other) {
                if (other == i || alone[other].options.sources.empty()) continue;
                if (loads_anything(alone[other], target) ||
                    alone[other].options.max_budget > alone[i].options.max_budget)
                    lm_heads[i] = LmHead::Own;
            }
        }
    }
    std::vector<DraftSettings> chosen(lists.begin(), lists.end());
    // All lists share one view: that of the first which drafts over one, by its own options. Lists that draw tokens
    // from it come before others, since for them it follows from counts alone (distribution-exact sampling, E3).
    std::optional<ViewOptions> view;
    for (const bool draws : {true, false})
        for (std::size_t i = 0; i < lists.size(); ++i) {
            if ((lists[i].options.child_rule == draft::ChildRule::Draw) != draws) continue;
            chosen[i] = choose_draft(lists[i], target, callbacks, check, lm_heads[i], view, learnt);
            if (!view && chosen[i].options.has(draft::SourceKind::Retrieval)) view = chosen[i].options.view;
        }
    return chosen;
}

}  // namespace

Drafting::Drafting(std::span<const DraftSettings> lists, const PlacedModel& target, const Model* whole_model,
                   const SamplerOptions& sampling, const EngineCallbacks& callbacks, CheckPasses check) {
    for (const EngineDevice& each : target.devices()) devices_.push_back(each.device);
    const bool uses_learnt = std::ranges::any_of(lists, [](const DraftSettings& list) {
        return list.options.has(draft::SourceKind::Retrieval) && list.verify == VerifyRule::Exact;
    });
    if (uses_learnt && target.tables_folder())
        view_acceptance_ = KeptViewAcceptance(*target.tables_folder(), target.files(), [&](std::string_view line) {
                               callbacks.note(line);
                           }).read();
    std::vector<DraftSettings> chosen = choose_drafts(lists, target, view_acceptance_, callbacks, check);
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
        needs.head_pass_bytes += drafter->head_pass_bytes();
        const std::optional<ViewNeeds> view = drafter->view_needs();
        if (view && (!needs.view || needs.view->max_nodes < view->max_nodes)) needs.view = view;
    }
    return needs;
}

bool Drafting::shares_lm_head() const {
    return head_ != nullptr && !head_->head->has_lm_head();
}

std::size_t hidden_tail_bytes(const DraftSettings& draft, const PlacedModel& target, const EngineCallbacks& callbacks) {
    const DraftSettings chosen = choose_draft(draft, target, callbacks);
    if (!chosen.options.has(draft::SourceKind::Mtp)) return 0;
    return head_tail_bytes(target.config(), chosen.options);
}

void Drafting::attach(const LoadedModel& target, ModelRunner& runner) {
    if (head_ != nullptr && !attach_lm_head(*head_, target))
        for (const auto& drafter : drafters_) drafter->drop_head();
    for (const auto& drafter : drafters_) {
        if (drafter->view_needs()) drafter->attach_view(target, *runner.view());
        if (drafter->needs_hidden()) drafter->attach_hidden(*runner.hidden());
        drafter->plan_passes(target);
    }
}

}  // namespace slipstream::tools
