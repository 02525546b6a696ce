#include "tools/bench/bench_columns.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_tokens.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/sampling_options.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

BenchColumns::BenchColumns(BenchResult& result, const BenchRequest& request, PlacedModel placed,
                           std::int64_t text_tokens, const std::vector<TokenId>& end_tokens, CommandContext& context)
    : keeps_tables_(request.keeps_tables) {
    // With a memory budget, drafting is set up before the model is loaded, and the plan uses the memory that it leaves.
    const EngineCallbacks callbacks = console_callbacks(context);
    check_logit_bias(request.sampling, placed.config().vocab);
    const bool budgeted = placed.budgeted();
    if (!budgeted) model_.emplace(load_for_bench(result, std::move(placed), {}, context));
    std::vector<DraftSettings> lists{DraftSettings{}};  // plain decoding
    lists.insert(lists.end(), request.drafts.begin(), request.drafts.end());
    drafting_.emplace(lists, model_ ? *model_ : placed, model_ ? model_->whole_model() : nullptr, request.sampling,
                      callbacks);
    // With a memory budget the model is planned as for generation: for the whole context.
    const RunNeeds needs = drafting_->needs(budgeted ? 0 : text_tokens);
    if (!model_) model_.emplace(load_for_bench(result, std::move(placed), needs, context));
    runner_ = make_runner(*model_, needs, callbacks);
    drafting_->attach(*model_, *runner_);
    for (std::size_t i = 0; i < lists.size(); ++i) {
        EngineDrafter& drafter = drafting_->drafter(i);
        columns_.push_back(
            {.drafter = &drafter,
             .figures = {.list = lists[i].list, .budget = drafter.budget()},
             .loop = BenchLoop(*model_, *runner_, drafter, {.end_tokens = end_tokens, .sampling = request.sampling})});
    }
    if (!request.trace) return;
    runner_->profile(StageEnd::Enqueued, request.trace.get());
    for (Column& column : columns_) column.loop.trace_with(*request.trace, column.figures.list);
}

void BenchColumns::restore(TextSession& session, const EngineCallbacks& callbacks) {
    static_cast<void>(session.restore(runner_->target(), *model_, callbacks));
    n_kept_ = std::ssize(session.begin().prompt);
}

std::vector<TokenId> BenchColumns::converse_in(Column& column, const BenchTalk& talk, std::int64_t decode_tokens,
                                               BenchSample sample, const BenchProgress& progress) {
    if (!keeps_tables_) column.drafter->reset();
    column.loop.restart(n_kept_);
    runner_->use_view(column.drafter->view_needs().has_value());
    const std::vector<draft::SourceFigures> before = column.drafter->figures();
    std::vector<TokenId> text;
    std::vector<std::vector<TokenId>> answers;
    for (std::int64_t turn = 0; turn < talk.n_turns; ++turn) {
        std::vector<TokenId> prompt = talk.prompt(turn, text, answers);
        const auto n_prompt = std::ssize(prompt);
        const BenchLoop::Run run = column.loop.run(std::move(prompt), decode_tokens, [&](double share) {
            progress((static_cast<double>(turn) + share) / static_cast<double>(talk.n_turns));
        });
        text = column.loop.text();
        answers.emplace_back(text.begin() + n_prompt, text.end());
        if (sample == BenchSample::WarmUp) continue;
        column.figures.prefill.push_back(run.prefill);
        column.figures.decode.push_back(run.decode);
        column.figures.passes += run.passes;
        column.figures.nodes += run.nodes;
        column.figures.draft_seconds += run.draft_seconds;
    }
    if (sample == BenchSample::Measured) column.figures.sources.add(before, column.drafter->figures());
    return text;
}

void BenchColumns::converse(const BenchTalk& talk, std::int64_t decode_tokens, BenchSample sample,
                            const BenchProgress& progress) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        Column& column = columns_[i];
        std::vector<TokenId> text = converse_in(column, talk, decode_tokens, sample, [&](double share) {
            progress((static_cast<double>(i) + share) / static_cast<double>(columns_.size()));
        });
        if (i == 0) {
            plain_text_ = std::move(text);
            if (sample != BenchSample::Measured) continue;
            ++n_plain_;
            if (repeats_itself(plain_text_, std::ssize(talk.prompt(0, {}, {})) + 1)) ++n_repeating_;
        } else if (sample == BenchSample::Measured) {
            ++column.figures.texts;
            column.figures.texts_equal += text == plain_text_ ? 1 : 0;
        }
    }
}

void BenchColumns::prefill(std::vector<TokenId> text, BenchSample sample, const BenchProgress& progress) {
    BenchLoop& plain = columns_.front().loop;
    plain.restart();
    const BenchLoop::Run run = plain.run(std::move(text), 0, progress);
    if (sample == BenchSample::Measured) prefill_.push_back(run.prefill);
}

void BenchColumns::report_repeats(Console& console) const {
    if (2 * n_repeating_ <= n_plain_) return;
    console.note(fmt::format(
        "{} mostly earlier text, of the prompt or of itself, which makes speculative decoding look better than "
        "it is elsewhere; give another --prompt, --prompts F, or a --temperature",
        n_plain_ == 1 ? std::string("the text that was decoded repeats")
                      : fmt::format("{} of {} texts that were decoded repeat", n_repeating_, n_plain_)));
}

void BenchColumns::put_figures(BenchResult& result) const {
    const DraftFigures& plain = columns_.front().figures;
    result.phases.push_back({.name = "prefill", .samples = prefill_.empty() ? plain.prefill : prefill_});
    // Texts of a single token have no decode phase.
    PhaseFigures decode{.name = "decode", .samples = {}};
    for (const PhaseSample& sample : plain.decode)
        if (sample.tokens > 0) decode.samples.push_back(sample);
    if (!decode.samples.empty()) result.phases.push_back(std::move(decode));
    if (columns_.size() == 1) return;
    for (const Column& column : columns_) result.drafts.push_back(column.figures);
}

}  // namespace slipstream::tools
