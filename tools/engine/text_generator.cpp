#include "tools/engine/engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/cache/kv_ring.h"
#include "runtime/cache/recurrent_states.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/self_check.h"
#include "runtime/plan/pass_items.h"
#include "runtime/plan/split_plan.h"
#include "runtime/view/view_builder.h"
#include "tools/base/amounts.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

// Makes the passes of the self-check smaller until they fit on the device; `all_resident`: beside all of the model. If
// they do not fit at all, loading reports it.
void fit_check(const PlacedModel& placed, RunNeeds& needs, bool all_resident, const EngineCallbacks& callbacks) {
    EnginePlanRequest request{.needs = needs, .ring_bytes = placed.offload().ring, .all_resident = all_resident};
    if (fitting_plan(placed, request) && request.needs.check_tokens < needs.check_tokens)
        callbacks.note(fmt::format("the self-check computes {} of a prompt at a time: more do not fit beside the model",
                                   counted(request.needs.check_tokens, "token")));
    needs = request.needs;
}

// Returns the default of --kept-memory in bytes, at most 4 GiB: what the host has left beside the whole KV of the
// running text and its checkpoints of recurrent layers, which may not be allocated yet, and 1 GiB for other programs.
std::size_t memory_left_for_texts(const LoadedModel& model) {
    constexpr std::size_t kGiB = std::size_t{1} << 30;
    constexpr std::size_t kMost = 4 * kGiB;
    const bool has_kv_on_host = model.arena() != nullptr || model.device().shares_host_memory();
    std::size_t taken = kGiB;
    if (has_kv_on_host) taken += kv_bytes(model.config(), model.kv_dtype(), model.context_tokens());
    if (model.device().shares_host_memory())
        taken += RecurrentStates::most_checkpoint_bytes(model.config().kv_layouts(model.kv_dtype()),
                                                        model.context_tokens(), kCheckpointBytes);
    const std::size_t available = host_memory().available_bytes;
    return std::min(kMost, available - std::min(available, taken));
}

void report_kept_memory(const PrefixStore& store, const EngineCallbacks& callbacks) {
    const KeptFigures kept = store.figures();
    if (kept.limit_bytes == 0) return;
    const std::size_t least_bytes = kept.states_bytes + kept.chunk_bytes;
    if (kept.states_bytes > 0 && kept.limit_bytes < least_bytes) {
        callbacks.note(
            fmt::format("no text but the last is kept: the states of recurrent layers take {} and a KV chunk of {} {}, "
                        "--kept-memory is {}",
                        size_text(kept.states_bytes), counted(kChunkTokens, "token"), size_text(kept.chunk_bytes),
                        size_text(kept.limit_bytes)));
        return;
    }
    if (kept.limit_bytes < kept.chunk_bytes) {
        callbacks.detail(fmt::format("no text but the last is kept: a KV chunk of {} takes {}, --kept-memory is {}",
                                     counted(kChunkTokens, "token"), size_text(kept.chunk_bytes),
                                     size_text(kept.limit_bytes)));
        return;
    }
    const auto n_tokens =
        static_cast<std::int64_t>((kept.limit_bytes - kept.states_bytes) / kept.chunk_bytes) * kChunkTokens;
    if (kept.states_bytes == 0) {
        callbacks.detail(fmt::format("memory of the host: KV of earlier texts at most {}, about {} (--kept-memory)",
                                     size_text(kept.limit_bytes), counted(n_tokens, "token")));
        return;
    }
    callbacks.detail(
        fmt::format("memory of the host: earlier texts at most {}, about {} of one text; of each text, one or two "
                    "states of recurrent layers are kept, of {} each (--kept-memory)",
                    size_text(kept.limit_bytes), counted(n_tokens, "token"), size_text(kept.states_bytes)));
}

// Gives free slots to the experts that earlier texts chose most often.
void start_slots(const LoadedModel& model, ModelRunner& runner, const EngineCallbacks& callbacks) {
    if (model.expert_counts().empty() || runner.slots_are_full()) return;
    std::vector<ExpertUse> use;
    for (const ExpertCountsOfLayer& layer : model.expert_counts()) use.push_back(layer.use);
    std::size_t bytes = 0;
    {
        const WorkProgress progress = callbacks.work("loading experts");
        bytes = runner.start_slots(use, [&](std::size_t done, std::size_t total) {
            progress(static_cast<double>(done), static_cast<double>(total),
                     fmt::format("{} of {}", size_text(done), size_text(total)));
        });
    }
    callbacks.detail(
        fmt::format("slots of experts begin with {} of what earlier texts chose most often", size_text(bytes)));
}

}  // namespace

// Members are in the order in which they are made: each uses those before it.
struct TextGenerator::Parts {
    std::optional<LoadedModel> model;
    std::optional<Drafting> drafting;
    LoopLimits limits;
    std::unique_ptr<ModelRunner> runner;
    std::optional<PrefixStore> prefixes;
    std::optional<Sampler> sampler;
    std::unique_ptr<Verifier> verifier;
    std::optional<RecordingVerifier> recorder;  // over verifier
    std::optional<SelfCheck> self_check;
    std::optional<GenerationLoop> loop;
    StreamSnapshot start{};
    StreamSnapshot before{};                            // what streamed before `start`
    std::int64_t n_built = 0;                           // builds of the view before `start`
    std::optional<KeptViewAcceptance> kept_acceptance;  // no value: texts teach nothing of the view
    ViewAcceptance acceptance;                          // what the file said, and what texts have taught since then
    bool has_learnt = false;                            // since the file was written
    std::int64_t n_reused = 0;                          // positions that the running text began with
    std::int64_t n_timed = 0;                           // prompt tokens of which seconds_per_prompt_token is the mean
    // That of the prompt with most computed tokens so far; 0: no prompt was computed.
    double seconds_per_prompt_token = 0.0;
};

TextGenerator::TextGenerator(const GeneratorOptions& options, OpenedModel opened, const SamplerOptions& sampling,
                             std::vector<TokenId> end_tokens, const EngineCallbacks& callbacks)
    : parts_(std::make_unique<Parts>()) {
    check_logit_bias(sampling, opened.config().vocab);
    PlacedModel placed(std::move(opened), options.compute, callbacks);
    if (options.prompt_tokens) GenerationLoop::check_prompt(*options.prompt_tokens, placed.context_tokens());
    // Without a memory budget, the model is loaded first, so that tables can be computed from it. With one, the drafter
    // is made first, and the plan gets the memory that it leaves.
    std::optional<LoadedModel>& model = parts_->model;
    if (!placed.budgeted()) model.emplace(std::move(placed), RunNeeds{}, callbacks);
    Drafting& drafting =
        parts_->drafting.emplace(std::span(&options.draft, 1), model ? *model : placed,
                                 model ? model->whole_model() : nullptr, sampling, callbacks, options.check);
    parts_->limits = {drafting.budget(), std::move(end_tokens)};
    RunNeeds needs = drafting.needs(0, options.check);
    if (!model) {
        if (options.check == CheckPasses::Yes) fit_check(placed, needs, drafting.shares_lm_head(), callbacks);
        try {
            model.emplace(std::move(placed), needs, callbacks);
        } catch (const OutOfBudget& error) {
            if (options.check == CheckPasses::No) throw;
            throw OutOfBudget(fmt::format("{}; --self-check, which computes again, is part of it", error.what()));
        }
    }
    parts_->runner = make_runner(*model, needs, callbacks);
    ModelRunner& runner = *parts_->runner;
    drafting.attach(*model, runner);
    if (runner.view() != nullptr) {
        runner.use_view(true);
        // Under Rejection tokens are accepted by another rule, and there is no prior for a window.
        if (const auto& folder = model->tables_folder(); folder && options.draft.verify == VerifyRule::Exact &&
                                                         runner.view_builder()->options().kind == ViewKind::Retrieval)
            parts_->kept_acceptance.emplace(*folder, model->files(),
                                            [callbacks](std::string_view line) { callbacks.note(line); });
        parts_->acceptance = drafting.view_acceptance();
    }
    parts_->prefixes.emplace(runner.sequence(),
                             options.kept_memory ? *options.kept_memory : memory_left_for_texts(*model),
                             callbacks.on_detail);
    report_kept_memory(*parts_->prefixes, callbacks);
    parts_->sampler.emplace(sampling, model->config().vocab);
    parts_->verifier = drafting.drafter().make_verifier(*parts_->sampler);
    parts_->recorder.emplace(*parts_->verifier);
    parts_->loop.emplace(runner.sequence(), *parts_->recorder, drafting.drafter().proposer(), parts_->limits);
    if (options.check == CheckPasses::Yes) parts_->loop->check_with(parts_->self_check.emplace(runner.check_target()));
    start_clock();
    start_slots(*model, runner, callbacks);  // after start_clock(): what it copies counts as the prompt's
}

TextGenerator::TextGenerator(TextGenerator&&) noexcept = default;
TextGenerator::~TextGenerator() = default;

const LoadedModel& TextGenerator::model() const {
    return *parts_->model;
}

const std::vector<TokenId>& TextGenerator::end_tokens() const {
    return parts_->limits.end_tokens;
}

Sequence& TextGenerator::sequence() {
    return parts_->runner->sequence();
}

const Sequence& TextGenerator::sequence() const {
    return std::as_const(*parts_->runner).sequence();
}

std::int64_t TextGenerator::start(std::vector<TokenId> prompt) {
    parts_->loop->check_prompt(std::ssize(prompt));
    const auto on_loss = [&](std::int64_t n_same) {
        // So few tokens are computed again without a note: the user does not notice the time.
        if (n_same < (model().config().is_recurrent() ? kPrefillChunkTokens : kChunkTokens)) return;
        const double seconds = parts_->seconds_per_prompt_token * static_cast<double>(n_same);
        const std::string reason =
            model().config().is_recurrent()
                ? std::string("the text is cut, and the states of recurrent layers are those of the last checkpoint")
                : fmt::format(
                      "the text is cut by more than {}: layers with a sliding window no longer hold what it needs",
                      counted(kCutSlackTokens, "token"));
        model().callbacks().note(
            fmt::format("{}, so {} are computed again{}", reason, counted(n_same, "token"),
                        seconds > 0.0 ? fmt::format(", in about {:.{}f} s", seconds, seconds < 10.0 ? 1 : 0) : ""));
    };
    parts_->n_reused = parts_->prefixes->reuse(prompt, on_loss);
    parts_->loop->begin(std::move(prompt));
    return parts_->n_reused;
}

void TextGenerator::resume(std::vector<TokenId> tokens, std::int64_t n_prompt) {
    parts_->n_reused = sequence().n_computed();
    parts_->loop->resume(std::move(tokens), n_prompt);
}

TextGenerationResult TextGenerator::generate(const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                                             const TextGenerationOptions& options,
                                             const TextGenerationCallbacks& callbacks) {
    TextGenerationCallbacks keeping = callbacks;
    if (PrefixStore& store = *parts_->prefixes; store.keeps_texts()) {  // between two passes
        keeping.on_prefill = [&](std::int64_t done, std::int64_t total) {
            store.keep();
            if (callbacks.on_prefill) callbacks.on_prefill(done, total);
        };
        keeping.on_commit = [&](std::span<const TokenId> tokens) {
            if (callbacks.on_commit) callbacks.on_commit(tokens);
            store.keep();
        };
    }
    const SourceTotal before = view_drafting();
    const TextGenerationResult result =
        generate_text(*parts_->loop, tokenizer, start, parts_->limits, options, keeping);
    learn_view_acceptance(before);
    const std::int64_t n_computed = result.prompt_tokens - std::exchange(parts_->n_reused, 0);
    if (n_computed > parts_->n_timed) {
        parts_->n_timed = n_computed;
        parts_->seconds_per_prompt_token = result.prefill_seconds / static_cast<double>(n_computed);
    }
    return result;
}

void TextGenerator::trace_with(TraceFile& trace) {
    parts_->runner->profile(StageEnd::Enqueued, &trace);
    parts_->loop->trace_with(trace, trace.add_track("generation"));
}

void TextGenerator::resample(const SamplerOptions& sampling) {
    const std::int64_t vocab = model().config().vocab;
    check_logit_bias(sampling, vocab);
    *parts_->sampler = Sampler(sampling, vocab);  // in place: the verifier has a pointer to it
    parts_->drafting->drafter().resample(sampling);
}

void TextGenerator::record_logprobs(LogprobRecord* record) {
    parts_->recorder->record(record);
}

KeptFigures TextGenerator::kept() const {
    return parts_->prefixes->figures();
}

SourceTotals TextGenerator::sources() const {
    return SourceTotals(std::as_const(*parts_->drafting).drafter().figures());
}

void TextGenerator::report_passes(std::function<void(const Observation&)> on_pass) {
    parts_->loop->report_passes(std::move(on_pass));
}

std::uint32_t TextGenerator::sources_of(TreeNode node) {
    return parts_->drafting->drafter().sources_of(node);
}

std::vector<LinkFigures> TextGenerator::links() const {
    std::vector<LinkFigures> links;
    if (!parts_->runner->streams()) return links;
    for (const EngineDevice& each : model().devices()) links.push_back(each.device->link_in());
    return links;
}

void TextGenerator::save_prompts(PromptCheckpoints* checkpoints) {
    parts_->loop->save_prompts(checkpoints);
}

void TextGenerator::start_clock() {
    const StreamSnapshot now = stream_snapshot(model(), *parts_->runner);
    parts_->before = now - parts_->start;
    parts_->start = now;
    if (const ViewBuilder* builder = parts_->runner->view_builder()) parts_->n_built = builder->n_built();
}

void TextGenerator::keep_tables() const {
    parts_->drafting->drafter().save();
    if (std::exchange(parts_->has_learnt, false)) parts_->kept_acceptance->write(parts_->acceptance);
    const KeptExpertCounts* const kept = model().kept_expert_counts();
    if (kept == nullptr) return;
    const std::vector<DistinctExperts> distinct = parts_->runner->distinct_experts();
    if (std::ranges::all_of(distinct, &DistinctExperts::empty)) return;  // no pass has run
    kept->write(parts_->runner->expert_use(), distinct, model().expert_counts());
}

SourceTotal TextGenerator::view_drafting() const {
    const SourceTotals totals = sources();
    for (const SourceTotal& source : totals.totals())
        if (source.name == draft::source_name(draft::SourceKind::Retrieval)) return source;
    return {};
}

// Learns from the text that has just ended, which began with the figures `before`.
void TextGenerator::learn_view_acceptance(const SourceTotal& before) {
    if (!parts_->kept_acceptance) return;
    const SourceTotal after = view_drafting();
    const std::int64_t n_tokens = after.parents - before.parents;
    if (n_tokens <= 0) return;
    const ViewOptions& view = parts_->runner->view_builder()->options();
    parts_->acceptance.learn(view.type, view.budget_tokens, std::ssize(sequence().tokens()), n_tokens,
                             std::max<std::int64_t>(n_tokens - (after.accepted - before.accepted), 0));
    parts_->has_learnt = parts_->acceptance.n_tokens() > 0.0;
}

std::optional<ViewTotals> TextGenerator::view_totals() const {
    const ViewBuilder* builder = parts_->runner->view_builder();
    if (builder == nullptr) return std::nullopt;
    ViewTotals view{
        .type = builder->options().type,
        .share = std::min(
            1.0, static_cast<double>(builder->options().budget_tokens) / static_cast<double>(model().context_tokens())),
        .bytes = parts_->runner->view_bytes(),
        .rebuilds = std::max<std::int64_t>(builder->n_built() - std::max<std::int64_t>(parts_->n_built, 1), 0)};
    if (const SourceTotal source = view_drafting(); source.parents > 0)
        view.acceptance = static_cast<double>(source.accepted) / static_cast<double>(source.parents);
    return view;
}

void TextGenerator::complete(RunFigures& figures) const {
    keep_tables();
    parts_->drafting->drafter().report_backoff();
    figures.sources = sources();
    figures.view = view_totals();
    if (parts_->self_check) figures.checked_tokens = parts_->self_check->figures().tokens;
    figures.streamed = stream_snapshot(model(), *parts_->runner) - parts_->start;
    figures.streamed_before = parts_->before;
}

std::vector<TokenId> all_end_tokens(const GenerationDefaults& defaults, const Tokenizer& tokenizer) {
    std::vector<TokenId> tokens = defaults.end_tokens;
    for (const TokenId id : tokenizer.end_tokens())
        if (std::ranges::find(tokens, id) == tokens.end()) tokens.push_back(id);
    return tokens;
}

}  // namespace slipstream::tools
