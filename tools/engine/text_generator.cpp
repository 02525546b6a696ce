#include "tools/engine/text_generator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/engine/draft_choice.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/planner.h"

namespace slipstream::tools {

namespace {

// Makes the passes of the self-check smaller until they fit on the device. If they do not fit at all, loading reports
// it.
void fit_check(const PlacedModel& placed, RunNeeds& needs, const EngineCallbacks& callbacks) {
    EnginePlanRequest request{.needs = needs, .ring_bytes = placed.offload().ring};
    if (fitting_plan(placed, request) && request.needs.check_tokens < needs.check_tokens)
        callbacks.note(
            fmt::format("the self-check computes {} of a prompt at a time, for more do not fit beside the model",
                        counted(request.needs.check_tokens, "token")));
    needs = request.needs;
}

}  // namespace

TextGenerator::TextGenerator(const GeneratorOptions& options, OpenedModel opened, const SamplerOptions& sampling,
                             std::vector<TokenId> end_tokens, const EngineCallbacks& callbacks) {
    check_logit_bias(sampling, opened.config().vocab);
    PlacedModel placed(std::move(opened), options.compute, callbacks);
    if (options.prompt_tokens) GenerationLoop::check_prompt(*options.prompt_tokens, placed.context_tokens());
    // Without a memory budget, the model is loaded first, so that tables can be computed from it. With one, the drafter
    // is made first, and the plan gets the memory that it leaves.
    if (!placed.budgeted()) model_.emplace(std::move(placed), RunNeeds{}, callbacks);
    const PlacedModel& target = model_ ? *model_ : placed;
    const DraftSettings draft = choose_draft(options.draft, target, callbacks, options.check);
    draft_model_ = load_draft_model(draft, target, callbacks);
    drafter_.emplace(draft, target, model_ ? model_->whole_model() : nullptr, draft_model_ ? &*draft_model_ : nullptr,
                     sampling, callbacks);
    limits_ = {drafter_->budget(), std::move(end_tokens)};
    RunNeeds needs = generation_needs(limits_.budget, 0, options.check);
    needs.view = drafter_->view_needs();
    if (!model_) {
        if (options.check == CheckPasses::Yes) fit_check(placed, needs, callbacks);
        try {
            model_.emplace(std::move(placed), needs, callbacks);
        } catch (const OutOfBudget& error) {
            if (options.check == CheckPasses::No) throw;
            throw OutOfBudget(fmt::format("{}; --self-check, which computes again, is part of it", error.what()));
        }
    }
    runner_ = make_runner(*model_, needs, callbacks);
    prefixes_.emplace(runner_->sequence());
    if (runner_->view() != nullptr) {
        drafter_->attach_view(*model_, *runner_->view());
        runner_->use_view(true);
    }
    sampler_.emplace(sampling, model_->config().vocab);
    verifier_ = make_verifier(options.draft.verify, *sampler_, model_->config().vocab, *drafter_);
    loop_.emplace(runner_->sequence(), *verifier_, drafter_->proposer(), limits_);
    if (options.check == CheckPasses::Yes) loop_->check_with(self_check_.emplace(runner_->check_target()));
    drafter_->plan_passes(*model_);
    start_clock();
}

void TextGenerator::resample(const SamplerOptions& sampling) {
    check_logit_bias(sampling, model_->config().vocab);
    *sampler_ = Sampler(sampling, model_->config().vocab);  // the verifier holds a pointer to sampler_
    drafter_->resample(sampling);
}

SourceTotals TextGenerator::sources() const {
    return SourceTotals(drafter_->figures());
}

void TextGenerator::start_clock() {
    const StreamSnapshot now = stream_snapshot(*model_, *runner_);
    before_ = now - start_;
    start_ = now;
}

void TextGenerator::complete(RunFigures& figures) const {
    drafter_->save();
    drafter_->report_backoff();
    figures.sources = sources();
    if (self_check_) figures.checked_tokens = self_check_->figures().tokens;
    figures.streamed = stream_snapshot(*model_, *runner_) - start_;
    figures.streamed_before = before_;
}

std::vector<TokenId> all_end_tokens(const GenerationDefaults& defaults, const Tokenizer& tokenizer) {
    std::vector<TokenId> tokens = defaults.end_tokens;
    for (const TokenId id : tokenizer.end_tokens())
        if (std::ranges::find(tokens, id) == tokens.end()) tokens.push_back(id);
    return tokens;
}

}  // namespace slipstream::tools
