#include "tools/engine/engine_drafter.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "draft/models/draft_vocabulary.h"
#include "draft/models/mtp_source.h"
#include "draft/rejection.h"
#include "draft/source_set.h"
#include "draft/tables/model_ngrams.h"
#include "draft/tables/table_store.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/formats/head_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/hidden_tail.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/engine/planned_seconds.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;
using draft::SourceKind;

// Most operations that `auto` spends on computing tables from the model: about ten seconds of one core.
constexpr double kMaxTableOperations = 1e12;

// Returns the number of parameters that a pass multiplies by.
double parameters_of(const ModelWeights& weights) {
    double n = 0.0;
    for_each_pass_matrix(weights, [&](const ConstTensorView& view) {
        n += static_cast<double>(view.rows()) * static_cast<double>(view.cols());
    });
    return n;
}

// Returns whether the tables of the model are on disk and intact, or can be computed in a short time. If the model is
// not loaded (target_model is null), they must be on disk.
bool model_tables_pay(const draft::DraftOptions& options, const PlacedModel& target, const Model* target_model,
                      const EngineCallbacks& callbacks) {
    const auto vocab = static_cast<double>(target.config().vocab);
    if (target_model != nullptr && 2.0 * vocab * parameters_of(target_model->weights()) <= kMaxTableOperations)
        return true;
    if (!options.tables) return false;
    const draft::TableStore store(
        {.folder = *options.tables, .on_note = [&](std::string_view line) { callbacks.note(line); }});
    return draft::load_model_ngrams({.store = &store, .fingerprint = model_fingerprint(target.files())},
                                    target.config().vocab, draft::ModelNgramsOptions{}.k)
        .has_value();
}

// Removes the sources of `auto` that cannot be used for this target.
void drop_what_cannot_serve(draft::DraftOptions& options, const PlacedModel& target, const Model* target_model,
                            const EngineDraftModel* draft_model, const EngineCallbacks& callbacks) {
    const auto drop = [&](SourceKind kind, std::string_view why) {
        if (std::erase(options.sources, kind) > 0)
            callbacks.detail(fmt::format("draft: auto leaves {} out: {}", draft::source_name(kind), why));
    };
    if (draft_model == nullptr) drop(SourceKind::Model, "there is no draft model for this target (--draft-model)");
    if ((options.has(SourceKind::Bigram) || options.has(SourceKind::Unigram)) &&
        !model_tables_pay(options, target, target_model, callbacks))
        for (const SourceKind kind : {SourceKind::Bigram, SourceKind::Unigram})
            drop(kind,
                 "its table is missing, and takes long to build for this model, or more memory than "
                 "--device-memory leaves ('tables build --kind bigram' does)");
}

}  // namespace

fs::path draft_model_path(const DraftSettings& draft, const OpenedModel& target) {
    if (!draft.options.has(SourceKind::Model) || !draft.find_model) return {};
    return draft.find_model(target.path());
}

std::optional<EngineDraftModel> load_draft_model(const DraftSettings& draft, const PlacedModel& target,
                                                 const EngineCallbacks& callbacks) {
    if (!draft.options.has(SourceKind::Model)) return std::nullopt;
    EngineDraftModel engine;
    engine.path = draft_model_path(draft, target);
    if (engine.path.empty()) {
        if (draft.automatic) return std::nullopt;
        throw RequestError(
            fmt::format("--draft model: {} has no draft model of its own; name a small model with the "
                        "same vocabulary by --draft-model PATH",
                        target.path().string()));
    }
    callbacks.choice("draft-model", engine.path.string(), "the bundled one");
    engine.files = ModelFiles::open(engine.path);
    draft::check_draft_vocabulary(target.files(), *engine.files);
    if (const HostMemory memory = host_memory();
        memory.total_bytes > 0 && engine.files->total_bytes() > memory.available_bytes)
        throw OutOfBudget(
            fmt::format("the draft model's files hold {}, {} of memory are free beside the target; take "
                        "a smaller one, or --draft without 'model'",
                        size_text(engine.files->total_bytes()), size_text(memory.available_bytes)));
    const WorkProgress progress = callbacks.work("loading the draft model");
    const auto on_progress = [&](std::size_t done, std::size_t total) {
        progress(static_cast<double>(done), static_cast<double>(total),
                 fmt::format("{} of {}", size_text(done), size_text(total)));
    };
    const ModelConfig& config = engine.files->config();
    engine.model = std::make_unique<Model>(
        *engine.files, target.device(),
        LoadOptions{.context_tokens = config.context_tokens,
                    .kv_dtype = config.kv_dtype,
                    .rounding = WeightRounding::Q8_0,  // reads half the bytes; the target checks the result
                    .tag = MemoryTag::Draft,
                    .on_progress = on_progress});
    // A GPU is measured now: once the target is loaded, its memory budget may be full.
    engine.planned_seconds = resident_planned_seconds(*engine.files, config.kv_dtype, WeightRounding::Q8_0, target);
    return engine;
}

std::unique_ptr<HeadSource> open_target_head(DraftSettings& draft, const PlacedModel& target,
                                             const EngineCallbacks& callbacks) {
    if (!draft.options.has(SourceKind::Mtp)) return nullptr;
    std::string why;
    if (!has_head(target.files())) {
        why = fmt::format(
            "{} has no MTP head (tensors mtp.*, of GLM-4.5 one more layer, in GGUF files nextn) that can be used with "
            "{}",
            target.path().string(), target.config().family);
    } else {
        try {
            std::unique_ptr<HeadSource> head = open_head(target.files());
            ProposingHead::check_kernels(*head, target.device().kind());
            return head;
        } catch (const Error& error) {
            if (!draft.automatic) throw;
            why = error.what();
        }
    }
    if (!draft.automatic) throw RequestError(fmt::format("--draft mtp: {}; leave 'mtp' out", why));
    callbacks.detail(fmt::format("draft: auto leaves mtp out: {}", why));
    std::erase(draft.options.sources, SourceKind::Mtp);
    return nullptr;
}

std::size_t head_bytes(const HeadSource& head, const draft::DraftOptions& options, std::int64_t text_tokens,
                       ProposingHead::LmHead lm_head) {
    const ModelConfig& config = head.config();
    return ProposingHead::device_bytes(head, WeightRounding::Q8_0, lm_head) +
           draft::MtpSource::device_bytes(config, config.kv_dtype, draft::model_nodes(options, config.vocab),
                                          draft::head_slots(options, config, config.kv_dtype, text_tokens));
}

std::size_t head_tail_bytes(const ModelConfig& target, const draft::DraftOptions& options) {
    const std::int64_t budget = options.max_budget;
    return HiddenTail::host_bytes(target.d_model, draft::hidden_rows(budget), scratch_nodes_for(budget)).all;
}

std::size_t head_host_bytes(const HeadSource& head, const draft::DraftOptions& options, const PlacedModel& target,
                            ProposingHead::LmHead lm_head) {
    const std::size_t bytes = head_tail_bytes(head.config(), options) + head.own_embedding_bytes();
    if (target.device().shares_host_memory())
        return bytes + head_bytes(head, options, target.context_tokens(), lm_head);
    return bytes + head_pass_bytes(head, options, target.device());
}

std::size_t head_workspace_bytes(const HeadSource& head, const draft::DraftOptions& options, Device& device,
                                 const WorkspaceShapes& of_target) {
    const ModelConfig& config = head.config();
    const WorkspaceShapes of_head =
        draft::MtpSource::workspace_shapes(config, config.kv_dtype, draft::model_nodes(options, config.vocab));
    WorkspaceShapes both = of_target;
    both.n_tokens = std::max(both.n_tokens, of_head.n_tokens);
    both.max_cols = std::max(both.max_cols, of_head.max_cols);
    both.attention.insert(both.attention.end(), of_head.attention.begin(), of_head.attention.end());
    both.delta_steps = std::max(both.delta_steps, of_head.delta_steps);
    both.n_experts = std::max(both.n_experts, of_head.n_experts);
    both.n_logit_rows = std::max(both.n_logit_rows, of_head.n_logit_rows);
    both.vocab = std::max(both.vocab, of_head.vocab);
    both.prompt_rows = std::max(both.prompt_rows, of_head.prompt_rows);
    const std::size_t before = workspace_bytes(device, of_target);
    return std::max(workspace_bytes(device, both), before) - before;
}

std::size_t head_pass_bytes(const HeadSource& head, const draft::DraftOptions& options, const Device& device) {
    const ModelConfig& config = head.config();
    if (device.shares_host_memory()) return 0;
    return draft::MtpSource::pinned_bytes(config, draft::model_nodes(options, config.vocab));
}

std::optional<EngineHead> load_head(DraftSettings& draft, const PlacedModel& target, const Model* whole_model,
                                    const HostMemory& host, const EngineCallbacks& callbacks) {
    if (!draft.options.has(SourceKind::Mtp)) return std::nullopt;
    EngineHead engine;
    engine.source = open_head(target.files());
    CHECK(engine.source != nullptr, "the source mtp was chosen without a head");
    const bool is_shared = !engine.source->has_own_lm_head() && (whole_model != nullptr || draft.lm_head_of_target);
    const ProposingHead::LmHead lm_head = is_shared ? ProposingHead::LmHead::OfTarget : ProposingHead::LmHead::Own;
    const std::size_t bytes = head_host_bytes(*engine.source, draft.options, target, lm_head);
    if (host.total_bytes > 0 && bytes > host.available_bytes) {
        const std::string why = fmt::format("the MTP head takes {} of memory, {} are free beside the target",
                                            size_text(bytes), size_text(host.available_bytes));
        if (!draft.automatic) throw OutOfBudget(fmt::format("{}; give --draft without 'mtp'", why));
        callbacks.detail(fmt::format("draft: auto leaves mtp out: {}", why));
        std::erase(draft.options.sources, SourceKind::Mtp);
        return std::nullopt;
    }
    const WorkProgress progress = callbacks.work("loading the MTP head");
    const DType kv_dtype = engine.source->config().kv_dtype;
    engine.head = std::make_unique<ProposingHead>(
        *engine.source, target.device(),
        LoadOptions{.context_tokens = target.context_tokens(),
                    .kv_dtype = kv_dtype,
                    .rounding = WeightRounding::Q8_0,  // reads half the bytes; the target checks the result
                    .tag = MemoryTag::Draft,
                    .on_progress =
                        [&](std::size_t done, std::size_t total) {
                            progress(static_cast<double>(done), static_cast<double>(total),
                                     fmt::format("{} of {}", size_text(done), size_text(total)));
                        }},
        lm_head);
    if (is_shared && whole_model != nullptr) engine.head->use_lm_head_of(*whole_model);
    engine.planned_seconds = resident_planned_seconds(*engine.source, kv_dtype, WeightRounding::Q8_0, target);
    return engine;
}

bool attach_lm_head(EngineHead& head, const LoadedModel& target) {
    if (head.head->has_lm_head()) return true;
    const Model* whole = target.whole_model();
    if (whole == nullptr || !head.head->can_use_lm_head_of(*whole)) return false;
    head.head->use_lm_head_of(*whole);
    return true;
}

EngineDrafter::EngineDrafter(const DraftSettings& draft, const PlacedModel& target, const Model* target_model,
                             const EngineDraftModel* draft_model, const EngineHead* head,
                             const SamplerOptions& sampling, const EngineCallbacks& callbacks)
    : verify_(draft.verify),
      automatic_(draft.automatic),
      budget_(draft.options.max_budget),
      callbacks_(callbacks),
      vocab_(target.config().vocab) {
    DraftSettings chosen = draft;
    if (chosen.automatic) drop_what_cannot_serve(chosen.options, target, target_model, draft_model, callbacks);
    callbacks.detail(fmt::format("draft = {} ({})", describe_draft(chosen), draft.list));
    if (chosen.options.sources.empty()) return;
    const WorkProgress progress = callbacks.work("preparing the draft sources");
    draft::DraftContext for_target;
    for_target.vocab = vocab_;
    for_target.sampling = sampling;
    for_target.files = &target.files();
    for_target.text_tokens = target.context_tokens();
    for_target.model = target_model;
    if (chosen.options.corpus || chosen.options.frozen_table)
        for_target.tokenizer_fingerprint = tokenizer_fingerprint(*make_tokenizer(target.files().tokenizer_source()));
    if (draft_model != nullptr) {
        for_target.draft_model = draft_model->model.get();
        for_target.draft_planned_seconds = draft_model->planned_seconds;
    }
    if (head != nullptr) {
        for_target.head = head->head.get();
        for_target.head_planned_seconds = head->planned_seconds;
    }
    for_target.on_progress = [&](std::string_view what, double done, double total) { progress(done, total, what); };
    for_target.on_note = [callbacks](std::string_view note) { callbacks.note(note); };
    drafter_ = draft::make_drafter(chosen.options, for_target);
    if (head != nullptr && chosen.options.has(SourceKind::Mtp))
        head_pass_bytes_ = tools::head_pass_bytes(*head->source, chosen.options, target.device());
    made_with_ = std::move(chosen.options);
}

Proposer& EngineDrafter::proposer() {
    if (drafter_) return *drafter_;
    return nothing_;
}

std::unique_ptr<Verifier> EngineDrafter::make_verifier(Sampler& sampler) const {
    if (verify_ == VerifyRule::Exact) return std::make_unique<ExactVerifier>(sampler);
    return std::make_unique<draft::RejectionVerifier>(sampler, vocab_, drafter_ ? drafter_->distributions() : nullptr);
}

void EngineDrafter::plan_passes(const LoadedModel& target) {
    if (!drafter_ || !made_with_.adapt_budget) return;
    drafter_->pass_curve().replan(target_planned_seconds(target));
}

std::optional<ViewNeeds> EngineDrafter::view_needs() const {
    if (!drafter_ || !made_with_.has(SourceKind::Retrieval)) return std::nullopt;
    ViewNeeds needs{made_with_.view, draft::model_nodes(made_with_, vocab_)};
    needs.options.in_steps = made_with_.child_rule == draft::ChildRule::Draw;
    return needs;
}

void EngineDrafter::attach_view(const LoadedModel& target, ViewPasses& passes) {
    draft::PlannedSeconds plan;
    if (made_with_.adapt_budget) plan = view_planned_seconds(target);
    drafter_->attach_view(passes, std::move(plan));
}

bool EngineDrafter::needs_hidden() const {
    return drafter_ && made_with_.has(SourceKind::Mtp);
}

void EngineDrafter::attach_hidden(const HiddenTail& tail) {
    drafter_->attach_hidden(tail);
}

// The source stays in the drafter; without hidden states it is never ready.
void EngineDrafter::drop_head() {
    if (!needs_hidden()) return;
    constexpr std::string_view kWhy = "the model's LM head, which its MTP head uses, does not stay on the device";
    if (!automatic_)
        throw OutOfBudget(fmt::format("{}; give --draft without 'mtp', or a larger --device-memory", kWhy));
    callbacks_.note(fmt::format("the MTP head is not used: {}", kWhy));
    std::erase(made_with_.sources, SourceKind::Mtp);
}

std::vector<draft::SourceFigures> EngineDrafter::figures() const {
    return drafter_ ? drafter_->figures() : std::vector<draft::SourceFigures>{};
}

std::uint32_t EngineDrafter::sources_of(TreeNode node) {
    return drafter_ ? drafter_->sources_of(node) : 0;
}

void EngineDrafter::reset() {
    if (drafter_) drafter_->reset();
}

void EngineDrafter::resample(const SamplerOptions& sampling) {
    if (drafter_) drafter_->set_sampling(sampling);
}

void EngineDrafter::report_backoff() const {
    if (!drafter_ || drafter_->back_off().passes == 0) return;
    const draft::BackOff& back_off = drafter_->back_off();
    callbacks_.detail(
        fmt::format("draft: drafting paused in {} of {} passes: before the last pause it took {:.2f} times as long as "
                    "plain decoding",
                    back_off.passes, back_off.of_passes, back_off.slowdown));
}

void EngineDrafter::save() const {
    if (!drafter_) return;
    try {
        drafter_->save();
    } catch (const Error& error) {
        callbacks_.note(fmt::format("the draft tables cannot be saved: {}", error.what()));
    }
}

}  // namespace slipstream::tools
