#include "tools/engine/draft_choice.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "draft/models/draft_model.h"
#include "draft/models/draft_vocabulary.h"
#include "draft/models/mtp_source.h"
#include "draft/papers/chain_shape.h"
#include "draft/source_set.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/device.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/model/weight_items.h"
#include "runtime/pass/hidden_tail.h"
#include "tools/base/amounts.h"
#include "tools/base/kv_type_option.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/planned_seconds.h"
#include "tools/engine/planner.h"
#include "tools/engine/view_acceptance.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

using draft::DraftOptions;
using draft::SourceKind;
using LmHead = ProposingHead::LmHead;

// Divisor: the logits of a tree may take 1 / kLogitShare of the device's memory.
constexpr std::size_t kLogitShare = 16;
// Divisor: the KV of a draft model may take 1 / kWindowShare of the device's memory.
constexpr std::size_t kWindowShare = 16;
// Divisor: on a device without a limit, the KV of a draft model may take 1 / kHostWindowShare of the host's free
// memory.
constexpr std::size_t kHostWindowShare = 8;
// Assumptions before anything is measured (figures of Qwen2.5-Coder 1.5B with its 0.5B: draft/NOTES.md).
constexpr double kModelAcceptance = 0.75;  // acceptance of a draft model's token whose parent is accepted
constexpr double kTableTokens = 1.5;       // tokens per pass with tables alone
constexpr std::int64_t kTableNodes = 4;    // nodes of a pass with tables alone
constexpr std::int64_t kLeastBudget = 2;   // nodes: node 0 and one draft token; less is no drafting
constexpr std::size_t kDraftReserve = 8;  // 1/N of a draft model's bytes, added for rope angles, KV chunks, rounding up
// Nodes of a tree over a view for each level of its depth. As many are in a pass over the view: trees of 64 nodes are
// 20 to 22 levels deep (draft/NOTES.md, "Streamed KV").
constexpr std::int64_t kNodesPerLevel = 3;
constexpr double kViewGain = 1.05;       // least planned speed-up for which `auto` uses a view
constexpr std::int64_t kViewShare = 16;  // a view of rows keeps 1/N of the context
constexpr std::int64_t kLeastViewTokens = 256;
constexpr std::int64_t kMostViewTokens = 4096;  // as in TriForce
// Sizes of views with pages that are weighed, in percent of the context. Without a plan it is kPagedPercent, which has
// about the bytes of 1/16 as rows.
constexpr std::array<std::int64_t, 4> kPagedPercents{12, 25, 50, 100};
constexpr std::int64_t kPagedPercent = 25;
constexpr std::int64_t kLeastPagedTokens = 512;
constexpr std::int64_t kViewSlack = 128;       // rows for commits while a rebuild of the view is due
constexpr std::int64_t kViewBuiltOnce = 1024;  // rows that a view which is never rebuilt can gain

// Returns the bytes of device memory that the target's own head takes, for trees of `budget` nodes beside passes of
// `needs`.
std::size_t planned_head_bytes(const HeadSource& head, const DraftOptions& options, std::int64_t budget,
                               const PlacedModel& target, const RunNeeds& needs, LmHead lm_head) {
    DraftOptions of_budget = options;
    of_budget.max_budget = budget;
    const std::size_t bytes = head_bytes(head, of_budget, target.context_tokens(), lm_head);
    const WorkspaceShapes of_target =
        Forward::workspace_shapes(target.shard_config(0), target.kv_dtype(), needs.forward);
    return bytes + bytes / kDraftReserve +
           head_workspace_bytes(head, of_budget, *target.devices().front().device, of_target);
}

// Returns the bytes of host memory that are pinned for the head on GPUs: of its passes, and hidden states of the
// target.
std::size_t pinned_for_head(const HeadSource& head, const DraftOptions& options, const PlacedModel& target) {
    const bool has_gpu = std::ranges::any_of(
        target.devices(), [](const EngineDevice& each) { return !each.device->shares_host_memory(); });
    if (!has_gpu) return 0;
    const std::int64_t budget = options.max_budget;
    return head_pass_bytes(head, options, target.device()) +
           HiddenTail::host_bytes(head.config().d_model, draft::hidden_rows(budget), scratch_nodes_for(budget))
               .of_nodes;
}

// Opens the MTP head, as open_target_head() does. If --host-memory is too small for what is pinned for it, throws
// OutOfBudget; of `auto`, removes the source and reports why as a detail.
std::unique_ptr<HeadSource> open_head_within_limits(DraftSettings& draft, const PlacedModel& target,
                                                    const EngineCallbacks& callbacks) {
    std::unique_ptr<HeadSource> head = open_target_head(draft, target, callbacks);
    const std::size_t limit = target.offload().host_memory;
    if (head == nullptr || limit == 0) return head;
    const std::size_t bytes = pinned_for_head(*head, draft.options, target);
    if (bytes <= limit) return head;
    const std::string why =
        fmt::format("the MTP head takes {} of pinned host memory, of {}", size_text(bytes), size_text(limit));
    if (!draft.automatic)
        throw OutOfBudget(fmt::format("{}; give --draft without 'mtp', or a larger --host-memory", why));
    callbacks.detail(fmt::format("draft: auto leaves mtp out: {}", why));
    std::erase(draft.options.sources, SourceKind::Mtp);
    return nullptr;
}

// Plans the target beside different draft sources.
class PlannedRun {
public:
    PlannedRun(const PlacedModel& target, CheckPasses check, LmHead lm_head)
        : target_(target), lm_head_(lm_head), check_(check) {}

    /// Whether a plan must have times of passes, for which the machine may be measured.
    enum class Timed : std::uint8_t { No, Yes };
    /// Returns the plan for trees of `budget` nodes, with `draft_bytes` of the first device for a draft model. Times of
    /// passes are valid only with Timed::Yes. Returns no value if it does not fit.
    /// Where everything stays resident with a head that uses the target's LM head, it does (shares_lm_head()).
    [[nodiscard]] std::optional<SplitPlan> with(std::int64_t budget, std::size_t draft_bytes, Timed timed) {
        if (head_ != nullptr && may_share()) {
            std::optional<SplitPlan> plan = with(budget, draft_bytes, timed, LmHead::OfTarget);
            if (plan) return plan;
        }
        return with(budget, draft_bytes, timed, LmHead::Own);
    }
    /// Returns whether everything stays resident in the plan of with().
    [[nodiscard]] bool is_all_resident(std::int64_t budget, std::size_t draft_bytes) {
        const std::optional<SplitPlan> plan = with(budget, draft_bytes, Timed::No);
        return plan && !plan->streams();
    }
    /// Returns whether the head that keep_head() set uses the target's LM head in the plan of with().
    [[nodiscard]] bool shares_lm_head(std::int64_t budget, std::size_t draft_bytes) {
        return head_ != nullptr && may_share() && with(budget, draft_bytes, Timed::No, LmHead::OfTarget);
    }
    /// Returns whether a head may use the target's LM head at all.
    [[nodiscard]] bool may_share() const { return lm_head_ == LmHead::OfTarget && target_.devices().size() == 1; }

    /// Later plans have this head on the first device; null: none. `options` and `head` must outlive this object.
    void keep_head(const HeadSource* head, const DraftOptions& options) {
        head_ = head;
        options_ = &options;
    }
    /// Returns the bytes of the head that keep_head() set, for trees of `budget` nodes; 0: none.
    [[nodiscard]] std::size_t head_bytes(std::int64_t budget, LmHead lm_head) const {
        if (head_ == nullptr) return 0;
        return planned_head_bytes(*head_, *options_, budget, target_, generation_needs(budget, 0, check_), lm_head);
    }
    /// Returns the least of them: without a copy of the LM head if it may do without.
    [[nodiscard]] std::size_t least_head_bytes(std::int64_t budget) const {
        return head_bytes(budget, may_share() ? LmHead::OfTarget : LmHead::Own);
    }
    /// Later plans have this KV view on the device; no value: none.
    void keep_view(const std::optional<ViewOptions>& view) { view_ = view; }
    /// Returns the planned seconds of a pass of `n_tokens` over `n_slots` KV positions if everything is resident.
    [[nodiscard]] double resident_seconds(std::int64_t n_tokens, std::int64_t n_slots) {
        return resident_plan(target_, std::max(n_slots, kChunkTokens)).pass(n_tokens).seconds;
    }

private:
    // With the LM head of the target, everything must stay resident.
    [[nodiscard]] std::optional<SplitPlan> with(std::int64_t budget, std::size_t draft_bytes, Timed timed,
                                                LmHead lm_head) {
        EnginePlanRequest request{.needs = generation_needs(budget, 0, check_),
                                  .beside_bytes = std::vector<std::size_t>(target_.devices().size(), 0),
                                  .ring_bytes = target_.offload().ring,
                                  .timed = timed == Timed::Yes,
                                  .all_resident = lm_head == LmHead::OfTarget};
        request.beside_bytes.front() = draft_bytes + head_bytes(budget, lm_head);
        if (view_)
            request.needs.view = ViewNeeds{*view_, draft::model_nodes({.max_budget = budget}, target_.config().vocab)};
        return fitting_plan(target_, request);
    }

    const PlacedModel& target_;
    const HeadSource* head_ = nullptr;
    LmHead lm_head_;  // OfTarget: a head may use the target's LM head where nothing streams
    const DraftOptions* options_ = nullptr;
    std::optional<ViewOptions> view_;
    CheckPasses check_;
};

using Timed = PlannedRun::Timed;

// Returns the bytes of device memory that a draft model takes: its weights as they are loaded (Q8_0), its passes for
// trees of `budget` nodes, and `window_bytes` of KV.
std::size_t draft_bytes_of(const ModelFiles& files, std::int64_t budget, std::size_t window_bytes) {
    std::size_t bytes = window_bytes;
    for (const WeightItem& item : cut_weight_items(files.weights(), WeightRounding::Q8_0, std::size_t{1} << 40))
        bytes += item.bytes;
    const ModelConfig& config = files.config();
    const std::int64_t nodes = std::max(draft::kLeastModelNodes, 2 * budget);
    const ForwardLimits passes{.max_tokens = draft::kFedTokens + nodes, .max_logit_rows = nodes};
    bytes += Model::small_tensor_bytes(files.weights());
    // The KV cache counts only with its scratch rows, for uncommitted tokens: window_bytes has the rest.
    bytes += Forward::device_bytes(config, passes, Forward::Streaming::No) +
             KvCache::device_bytes(config.kv_layouts(config.kv_dtype), 0, passes.max_tokens);
    return bytes + bytes / kDraftReserve;
}

double tokens_per_second_by_tables(const SplitPlan& plan) {
    return std::max(1.0 / plan.pass(1).seconds, kTableTokens / plan.pass(kTableNodes).seconds);
}

double tokens_per_second_by_model(const SplitPlan& plan, double seconds_per_draft_token) {
    const auto seconds = [&](std::int64_t guesses) {
        return plan.pass(guesses + 1).seconds + static_cast<double>(guesses) * seconds_per_draft_token;
    };
    return draft::best_chain(kModelAcceptance, draft::kLongestChain, seconds).tokens_per_second;
}

// Returns a tree budget in nodes whose passes cost little more than a pass of one node: the largest doubling of
// options.max_budget at which a pass of half as many nodes takes at most kAlmostFree times as long as one of 1 node.
// Its logits must take at most 1 / kLogitShare of `device_bytes`, and it must fit beside `draft_model` (null: there is
// none).
std::int64_t riding_budget(PlannedRun& run, const ModelConfig& config, std::size_t device_bytes,
                           const DraftOptions& options, const ModelFiles* draft_model) {
    std::int64_t budget = options.max_budget;
    while (2 * budget <= kMostPassTokens) {
        const std::size_t logits = 2 * budget * row_bytes(DType::F32, config.vocab);
        if (logits > device_bytes / kLogitShare) break;
        const std::size_t beside =
            draft_model != nullptr ? draft_bytes_of(*draft_model, 2 * budget, options.window_bytes) : 0;
        const std::optional<SplitPlan> plan = run.with(2 * budget, beside, Timed::Yes);
        if (!plan || plan->pass(budget).seconds > kAlmostFree * plan->pass(1).seconds) break;
        budget *= 2;
    }
    return budget;
}

// Returns the estimated seconds per token of a draft model of `draft_bytes` bytes. Measures the machine if its rates
// are unknown.
double seconds_per_draft_token(const PlacedModel& target, std::size_t draft_bytes) {
    return static_cast<double>(draft_bytes) *
           target.rates(0).rates.weights[static_cast<std::size_t>(DType::Q8_0)].seconds(1.0);
}

bool draft_model_pays(PlannedRun& run, std::int64_t budget, const ModelFiles& files, std::size_t window_bytes,
                      const PlacedModel& target, const EngineCallbacks& callbacks) {
    const std::size_t bytes = draft_bytes_of(files, budget, window_bytes);
    const std::optional<SplitPlan> without = run.with(budget, 0, Timed::Yes);
    const std::optional<SplitPlan> beside = run.with(budget, bytes, Timed::Yes);
    if (!without) return false;  // not even the target fits: loading it reports what is missing
    if (!beside) {
        callbacks.note(
            fmt::format("the draft model is not used: its {} do not fit beside the target", size_text(bytes)));
        return false;
    }
    const double by_tables = tokens_per_second_by_tables(*without);
    const double a_guess = seconds_per_draft_token(target, bytes);
    const double by_model = tokens_per_second_by_model(*beside, a_guess);
    callbacks.detail(
        fmt::format("draft: about {:.4g} tokens/s with the draft model, {:.4g} without", by_model, by_tables));
    if (by_model >= by_tables) return true;
    callbacks.note(fmt::format(
        "the draft model is not used: its {} of the device would slow the target from about {:.4g} to {:.4g} "
        "tokens/s (--draft model,... uses it anyway)",
        size_text(bytes), by_tables, by_model));
    return false;
}

// Returns whether the target decodes faster with its own head, which run.keep_head() has set, than with tables alone.
bool head_pays(PlannedRun& run, const HeadSource& head, const DraftOptions& options, const PlacedModel& target,
               const EngineCallbacks& callbacks) {
    const std::optional<SplitPlan> beside = run.with(options.max_budget, 0, Timed::Yes);
    if (beside && !beside->streams()) return true;
    const std::size_t bytes = run.head_bytes(options.max_budget, LmHead::Own);
    const std::size_t least_bytes = run.least_head_bytes(options.max_budget);
    run.keep_head(nullptr, options);
    const std::optional<SplitPlan> without = run.with(options.max_budget, 0, Timed::Yes);
    if (!without) return false;  // not even the target fits: loading it reports what is missing
    if (!beside) {
        callbacks.note(
            fmt::format("the MTP head is not used: its {} do not fit beside the target", size_text(least_bytes)));
        return false;
    }
    run.keep_head(&head, options);
    const double by_tables = tokens_per_second_by_tables(*without);
    const double by_head = tokens_per_second_by_model(*beside, seconds_per_draft_token(target, bytes));
    callbacks.detail(fmt::format("draft: about {:.4g} tokens/s with the MTP head, {:.4g} without", by_head, by_tables));
    if (by_head >= by_tables) return true;
    callbacks.note(
        fmt::format("the MTP head is not used: its {} of the device would slow the target from about {:.4g} to {:.4g} "
                    "tokens/s (--draft mtp,... uses it anyway)",
                    size_text(bytes), by_tables, by_head));
    run.keep_head(nullptr, options);
    return false;
}

bool has_view_size(const DraftSettings& draft) {
    return draft.options.view.budget_tokens > 0 || draft.view_percent > 0;
}

// Returns the view with what is not given: `type`, and a size, for pages of `percent` of the context. A view that is
// too small for pages is one of rows, unless --view-type asks for pages: then a percentage is raised to the least of
// them.
ViewOptions planned_view(const DraftSettings& draft, std::int64_t context_tokens, ViewType type,
                         std::int64_t percent = kPagedPercent) {
    ViewOptions view = draft.options.view;
    if (draft.view_percent > 0) {
        view.budget_tokens = std::max(context_tokens * draft.view_percent / 100, kGroupTokens);
        if (draft.view_type == ViewType::Q4) view.budget_tokens = std::max(view.budget_tokens, kLeastPagedView);
    } else if (view.budget_tokens == 0 && type == ViewType::Q4) {
        view.budget_tokens = std::max(context_tokens * percent / 100, kLeastPagedTokens);
    } else if (view.budget_tokens == 0) {
        view.budget_tokens = std::clamp(context_tokens / kViewShare, kLeastViewTokens, kMostViewTokens);
    }
    view.budget_tokens = round_up(std::min(view.budget_tokens, context_tokens), kGroupTokens);
    view.type = view.budget_tokens < kLeastPagedView ? ViewType::Rows : type;
    view.recent_tokens = view.budget_tokens * recent_percent(view.type) / 100;
    view.growth_tokens = view.rebuild_tokens > 0 ? view.rebuild_tokens + kViewSlack : kViewBuiltOnce;
    return view;
}

// Returns the view if nothing is weighed. Under distribution-exact sampling (E3) tokens are drawn from it, so it
// follows from counts alone, and is the one that pays where KV streams. Otherwise nothing streams: then more tokens
// mainly cost time.
ViewOptions unweighed_view(const DraftSettings& draft, std::int64_t context_tokens) {
    const bool has_pages =
        draft.options.child_rule == draft::ChildRule::Draw && draft.options.view.kind == ViewKind::Retrieval;
    return planned_view(draft, context_tokens, draft.view_type.value_or(has_pages ? ViewType::Q4 : ViewType::Rows));
}

// Returns the views that are weighed against each other: of each type, and of each size, that the user leaves open. For
// a window there is one, since the acceptances assumed here are those of retrieval.
std::vector<ViewOptions> planned_views(const DraftSettings& draft, std::int64_t context_tokens) {
    std::vector<ViewOptions> views;
    const auto add = [&](const ViewOptions& view) {
        const bool known = std::ranges::any_of(views, [&](const ViewOptions& other) {
            return other.type == view.type && other.budget_tokens == view.budget_tokens;
        });
        if (!known) views.push_back(view);
    };
    if (draft.options.view.kind == ViewKind::Window) return {unweighed_view(draft, context_tokens)};
    if (draft.view_type != ViewType::Q4) add(planned_view(draft, context_tokens, ViewType::Rows));
    if (draft.view_type == ViewType::Rows) return views;
    if (has_view_size(draft)) {
        add(planned_view(draft, context_tokens, ViewType::Q4));
    } else {
        for (const std::int64_t percent : kPagedPercents)
            add(planned_view(draft, context_tokens, ViewType::Q4, percent));
    }
    return views;
}

// Says which view there is if it is not what --view-type and --kv-budget ask for.
void report_view(const DraftSettings& draft, const ViewOptions& view, const PlacedModel& target,
                 const EngineCallbacks& callbacks) {
    const std::int64_t context_tokens = target.context_tokens();
    const std::int64_t asked =
        draft.view_percent > 0 ? context_tokens * draft.view_percent / 100 : draft.options.view.budget_tokens;
    const bool is_raised = asked > 0 && view.budget_tokens >= asked + kGroupTokens;  // beyond whole groups
    if (draft.view_type == ViewType::Q4 && (view.type != ViewType::Q4 || is_raised))
        callbacks.note(fmt::format("the view of the KV keeps {}, {}: one of type q4 has at least {}",
                                   counted(view.budget_tokens, "token"), view_type_text(view.type, target.kv_dtype()),
                                   kLeastPagedView));
    if (asked > view.budget_tokens)
        callbacks.detail(
            fmt::format("kv-budget = {} (of the {} asked for: the context has no more)", view.budget_tokens, asked));
}

// A view, the nodes of trees beside it, and the planned speed of drafting over it at full context.
struct WeighedView {
    ViewOptions view;
    std::int64_t budget = 0;  // 0: no view fits
    double tokens_per_second = 0.0;
};

// Returns the fastest of `views` for trees or chains of `options`, each with as many nodes as fit beside it and all
// weights, at most `budget` and at least `least`. A larger view drafts better, but its bytes let more KV stream, and
// its passes take longer.
WeighedView fastest_view(PlannedRun& run, const DraftOptions& options, std::int64_t budget, std::int64_t least,
                         std::size_t draft_bytes, std::span<const ViewOptions> views, const ViewAcceptance& acceptances,
                         const PlacedModel& target, const EngineCallbacks& callbacks) {
    WeighedView best;
    for (const ViewOptions& view : views) {
        run.keep_view(view);
        std::int64_t nodes = budget;
        std::optional<SplitPlan> beside = run.with(nodes, draft_bytes, Timed::Yes);
        for (; !beside && nodes / 2 >= least; nodes /= 2) beside = run.with(nodes / 2, draft_bytes, Timed::Yes);
        if (!beside) continue;
        const std::int64_t slots = rows_like_view(view, target.config(), target.kv_dtype(), target.device().kind());
        const bool is_chain = options.shape == draft::TreeShape::Chain;
        const std::int64_t width = is_chain ? 1 : std::clamp<std::int64_t>(nodes - 1, 1, kNodesPerLevel);
        const std::int64_t longest = std::min(draft::kLongestChain, is_chain ? options.gamma.value_or(nodes) : nodes);
        const std::int64_t most_levels = std::clamp<std::int64_t>((nodes - 1) / width, 1, longest);
        const std::int64_t context_tokens = target.context_tokens();
        const double acceptance = is_chain
                                      ? acceptances.expected_of_chain(view.type, view.budget_tokens, context_tokens)
                                      : acceptances.expected(view.type, view.budget_tokens, context_tokens);
        const double seconds_per_level = run.resident_seconds(width, slots);
        const double speed =
            draft::best_chain(acceptance, most_levels, [&](std::int64_t n_levels) {
                return beside->pass(width * n_levels + 1).seconds + static_cast<double>(n_levels) * seconds_per_level;
            }).tokens_per_second;
        callbacks.detail(
            fmt::format("draft: about {:.4g} tokens/s at full context with a view of {} tokens, {} (an "
                        "acceptance of {:.3f} is expected after {:.0f} tokens of earlier texts)",
                        speed, view.budget_tokens, view_type_text(view.type, target.kv_dtype()), acceptance,
                        acceptances.n_tokens()));
        if (speed > best.tokens_per_second) best = {view, nodes, speed};
    }
    run.keep_view(std::nullopt);
    return best;
}

// Returns the KV view with which drafting gains more than its memory costs, with the nodes of trees as fastest_view()
// does; budget 0 if none does.
WeighedView view_that_pays(PlannedRun& run, const DraftOptions& options, std::int64_t budget, std::int64_t least,
                           std::size_t draft_bytes, double seconds_per_model_draft_token,
                           std::span<const ViewOptions> views, const ViewAcceptance& acceptances,
                           const PlacedModel& target, const EngineCallbacks& callbacks) {
    const std::optional<SplitPlan> without = run.with(budget, draft_bytes, Timed::Yes);
    if (!without || without->sums().streamed_kv_bytes == 0) {
        callbacks.detail("draft: auto leaves retrieval out: no KV streams");
        return {};
    }
    const WeighedView best =
        fastest_view(run, options, budget, least, draft_bytes, views, acceptances, target, callbacks);
    if (best.budget == 0) {
        callbacks.detail("draft: auto leaves retrieval out: the weights do not fit beside a view");
        return {};
    }
    const double by_view = best.tokens_per_second;
    double by_others = tokens_per_second_by_tables(*without);
    if (seconds_per_model_draft_token > 0.0)
        by_others = std::max(by_others, tokens_per_second_by_model(*without, seconds_per_model_draft_token));
    const bool pays = by_view > kViewGain * by_others;
    callbacks.detail(
        fmt::format("draft: auto {} retrieval: about {:.4g} tokens/s at full context with a view of {} "
                    "tokens, {}, {:.4g} without",
                    pays ? "takes" : "leaves out", by_view, best.view.budget_tokens,
                    view_type_text(best.view.type, target.kv_dtype()), by_others));
    return pays ? best : WeighedView{};
}

// Whether the sources are those of `auto`, not requested by name.
enum class Automatic : std::uint8_t { No, Yes };

// Returns the largest tree budget with which everything stays resident beside the draft model of `files` (null: none):
// options.max_budget, or, if it may be made smaller for an MTP head that uses the target's LM head, a halving of it.
// Returns 0 if there is none.
std::int64_t resident_budget(PlannedRun& run, const DraftOptions& options, const ModelFiles* files) {
    const bool halves = options.adapt_budget && options.has(SourceKind::Mtp) && run.may_share();
    std::int64_t budget = options.max_budget;
    do {
        const std::size_t beside = files != nullptr ? draft_bytes_of(*files, budget, options.window_bytes) : 0;
        if (run.is_all_resident(budget, beside)) return budget;
        budget /= 2;
    } while (halves && budget >= kLeastBudget);
    return 0;
}

// Makes the trees smaller, and then removes sources, until they fit on the device beside the target; this is `--budget
// auto`. If the target alone does not fit, reports nothing: loading will. `draft_model` is one that was requested by
// name, or null; whether `auto` uses one is decided later. Throws OutOfBudget if an MTP head that was requested by name
// must go (automatic: No).
void fit_into_memory(DraftOptions& options, PlannedRun& run, const ModelFiles* draft_model, Automatic automatic,
                     const EngineCallbacks& callbacks) {
    const std::int64_t wanted = options.max_budget;
    // Returns the largest of wanted, wanted / 2, wanted / 4, ... nodes that fits beside the draft model of `files`; 0:
    // none does.
    const auto largest = [&](const ModelFiles* files) -> std::int64_t {
        for (std::int64_t budget = wanted; budget >= kLeastBudget; budget /= 2) {
            const std::size_t beside = files != nullptr ? draft_bytes_of(*files, budget, options.window_bytes) : 0;
            if (run.with(budget, beside, Timed::No)) return budget;
        }
        return 0;
    };
    std::int64_t fits = largest(draft_model);
    if (fits == 0 && options.has(SourceKind::Retrieval)) {
        run.keep_view(std::nullopt);
        fits = largest(draft_model);
        if (fits > 0) callbacks.note("retrieval is not used: all weights and a view of the KV do not fit at once");
        std::erase(options.sources, SourceKind::Retrieval);
    }
    const std::size_t head_bytes = run.least_head_bytes(kLeastBudget);
    const std::size_t model_bytes =
        draft_model != nullptr ? draft_bytes_of(*draft_model, kLeastBudget, options.window_bytes) : 0;
    const auto drop_head = [&] {
        if (fits > 0 || !options.has(SourceKind::Mtp)) return;
        run.keep_head(nullptr, options);
        if (automatic == Automatic::No && run.with(1, 0, Timed::No))
            throw OutOfBudget(
                fmt::format("the MTP head's {} do not fit beside the target{}; give --draft without "
                            "'mtp', or a larger --device-memory",
                            size_text(head_bytes), draft_model != nullptr ? " and the draft model" : ""));
        fits = largest(draft_model);
        if (fits > 0)
            callbacks.note(
                fmt::format("the MTP head is not used: its {} do not fit beside the target", size_text(head_bytes)));
        std::erase(options.sources, SourceKind::Mtp);
    };
    const auto drop_model = [&] {
        if (fits > 0 || draft_model == nullptr) return;
        draft_model = nullptr;
        fits = largest(nullptr);
        if (fits > 0)
            callbacks.note(fmt::format("the draft model is not used: its {} do not fit beside the target",
                                       size_text(model_bytes)));
        std::erase(options.sources, SourceKind::Model);
    };
    // The dearer one goes first.
    if (model_bytes > head_bytes) drop_model();
    drop_head();
    drop_model();
    if (fits > 0 && !options.sources.empty()) {
        options.max_budget = fits;
        if (fits < wanted)
            callbacks.note(fmt::format(
                "speculative decoding: draft trees of at most {} nodes; larger ones do not fit beside the model",
                fits));
        return;
    }
    options.sources.clear();
    options.max_budget = 1;
    if (fits == 0 && run.with(1, 0, Timed::No))
        callbacks.note("no speculative decoding: no draft tree fits beside the model");
}

// Throws OutOfBudget with the reason if trees of options.max_budget nodes do not fit although the target without
// drafting would: a budget that was given as a number is not made smaller.
void refuse_budget(const DraftOptions& options, PlannedRun& run, std::size_t draft_bytes, const HeadSource* head,
                   std::size_t device_bytes) {
    if (run.with(options.max_budget, draft_bytes, Timed::No)) return;
    const bool with_view = options.has(SourceKind::Retrieval);
    const bool with_head = head != nullptr;
    run.keep_view(std::nullopt);
    run.keep_head(nullptr, options);
    const bool fits_alone = run.with(1, 0, Timed::No).has_value();
    if (with_view) run.keep_view(options.view);
    run.keep_head(head, options);
    if (!fits_alone) return;
    throw OutOfBudget(fmt::format(
        "trees of {} nodes{}{}{} do not fit beside the model into {} of the device; give {}, "
        "{}{}{}or a larger --device-memory",
        options.max_budget, draft_bytes > 0 ? " and the draft model" : "", with_head ? " and the MTP head" : "",
        with_view ? " and a view of the KV with all weights" : "", size_text(device_bytes),
        options.adapt_budget ? "a smaller --budget" : "--budget auto or a smaller one",
        draft_bytes > 0 ? "--draft without 'model', " : "", with_head ? "--draft without 'mtp', " : "",
        with_view ? "a smaller --kv-budget, --draft without 'retrieval', " : ""));
}

}  // namespace

DraftSettings choose_draft(const DraftSettings& draft, const PlacedModel& target, const EngineCallbacks& callbacks,
                           CheckPasses check, ProposingHead::LmHead lm_head,
                           const std::optional<ViewOptions>& shared_view, const ViewAcceptance& learnt) {
    DraftSettings chosen = draft;
    if (chosen.options.sources.empty()) return chosen;
    const std::size_t device_bytes = target.device().budget().limit_bytes();
    const std::vector<ViewOptions> views =
        shared_view ? std::vector{*shared_view} : planned_views(draft, target.context_tokens());
    chosen.options.view = shared_view ? *shared_view : unweighed_view(draft, target.context_tokens());
    if (target.config().is_recurrent() && chosen.options.has(SourceKind::Retrieval)) {
        if (!chosen.automatic)
            throw RequestError(
                "--draft retrieval: a view holds a part of the KV, and the model's recurrent layers have none; leave "
                "'retrieval' out");
        callbacks.detail("draft: auto leaves retrieval out: the model has recurrent layers");
        std::erase(chosen.options.sources, SourceKind::Retrieval);
    }
    const std::unique_ptr<HeadSource> head = open_head_within_limits(chosen, target, callbacks);
    const bool wants_view = chosen.options.has(SourceKind::Retrieval);
    const bool chooses_view = wants_view && chosen.automatic;
    const auto report_chosen_view = [&] {
        if (!shared_view) report_view(draft, chosen.options.view, target, callbacks);
    };
    if (wants_view && !chooses_view) report_chosen_view();
    if (chooses_view) std::erase(chosen.options.sources, SourceKind::Retrieval);  // added again below if a view pays
    // With distribution-exact sampling (E3), the draft tokens influence the text: nothing measured may influence them.
    const bool draws = chosen.options.child_rule == draft::ChildRule::Draw;
    const ViewAcceptance acceptances = draft.verify == VerifyRule::Rejection ? ViewAcceptance() : learnt;
    const bool limited = device_bytes != Budget::kUnlimited || target.devices().size() > 1;
    if (draws && !limited) return chosen;
    if (!draws)
        chosen.options.window_bytes = device_bytes != Budget::kUnlimited
                                          ? device_bytes / kWindowShare
                                          : host_memory().available_bytes / kHostWindowShare;
    if (!limited) {
        if (chooses_view) callbacks.detail("draft: auto leaves retrieval out: nothing streams");
        return chosen;
    }
    const std::filesystem::path path = draft_model_path(chosen, target);
    std::unique_ptr<ModelFiles> files;
    if (!path.empty()) {
        files = ModelFiles::open(path);
        draft::check_draft_vocabulary(target.files(), *files);
    }
    // A copy of the LM head is rounded, so what is drawn from the head would depend on the memory limit.
    const bool is_own = draws || (head != nullptr && head->has_own_lm_head());
    PlannedRun run(target, check, is_own ? LmHead::Own : lm_head);
    run.keep_head(head.get(), chosen.options);
    const std::size_t draft_bytes =
        files ? draft_bytes_of(*files, chosen.options.max_budget, chosen.options.window_bytes) : 0;
    if (wants_view && !chooses_view) {
        const std::int64_t budget = chosen.options.max_budget;
        run.keep_view(chosen.options.view);
        const std::optional<SplitPlan> unweighed = run.with(budget, draft_bytes, Timed::No);
        if (!draws && views.size() > 1 && (!unweighed || unweighed->streams()))
            if (const WeighedView best =
                    fastest_view(run, chosen.options, budget, chosen.options.adapt_budget ? kLeastBudget : budget,
                                 draft_bytes, views, acceptances, target, callbacks);
                best.budget > 0)
                chosen.options.view = best.view;
        run.keep_view(chosen.options.view);
    }
    if (draws) {
        refuse_budget(chosen.options, run, draft_bytes, head.get(), device_bytes);
        return chosen;
    }
    // Returns whether everything stays resident beside the draft model (null: none) with some tree; if so, takes it.
    const auto takes_resident_budget = [&](const ModelFiles* draft_model) {
        const std::int64_t budget = resident_budget(run, chosen.options, draft_model);
        if (budget == 0) return false;
        if (budget < chosen.options.max_budget)
            callbacks.note(fmt::format(
                "speculative decoding: draft trees of at most {} nodes; beside larger ones the model would stream",
                budget));
        chosen.options.max_budget = budget;
        return true;
    };
    const auto takes_resident = [&] {
        if (!takes_resident_budget(files.get())) return false;
        const std::int64_t budget = chosen.options.max_budget;
        chosen.lm_head_of_target = run.shares_lm_head(
            budget, files ? draft_bytes_of(*files, budget, chosen.options.window_bytes) : std::size_t{0});
        return true;
    };
    if (takes_resident()) {
        if (chooses_view) callbacks.detail("draft: auto leaves retrieval out: nothing streams");
        return chosen;
    }
    if (chosen.options.adapt_budget) {
        fit_into_memory(chosen.options, run, chosen.automatic ? nullptr : files.get(),
                        chosen.automatic ? Automatic::Yes : Automatic::No, callbacks);
        if (chosen.options.sources.empty()) return chosen;
        if (!chosen.options.has(SourceKind::Model)) files.reset();
    } else {
        refuse_budget(chosen.options, run, chosen.automatic ? 0 : draft_bytes, head.get(), device_bytes);
    }
    if (chosen.options.has(SourceKind::Mtp) && chosen.automatic) {
        // Without a draft model of `auto`, everything may stay resident.
        if (!takes_resident_budget(nullptr) && !head_pays(run, *head, chosen.options, target, callbacks))
            std::erase(chosen.options.sources, SourceKind::Mtp);
    }
    if (files && chosen.automatic &&
        !draft_model_pays(run, chosen.options.max_budget, *files, chosen.options.window_bytes, target, callbacks)) {
        std::erase(chosen.options.sources, SourceKind::Model);
        files.reset();
    }
    if (chooses_view) {
        const std::size_t kept =
            files ? draft_bytes_of(*files, chosen.options.max_budget, chosen.options.window_bytes) : 0;
        const double of_model = files ? seconds_per_draft_token(target, kept) : 0.0;
        const std::int64_t budget = chosen.options.max_budget;
        const std::int64_t least = chosen.options.adapt_budget ? kLeastBudget : budget;
        if (const WeighedView best = view_that_pays(run, chosen.options, budget, least, kept, of_model, views,
                                                    acceptances, target, callbacks);
            best.budget > 0) {
            chosen.options.max_budget = best.budget;
            chosen.options.view = best.view;
            chosen.options.sources.push_back(SourceKind::Retrieval);
            run.keep_view(chosen.options.view);
            report_chosen_view();
        }
    }
    if (chosen.options.has(SourceKind::Mtp) && takes_resident()) return chosen;
    // Only merged trees may grow: the tree shape of a paper keeps its size.
    const bool merged = !chosen.options.shape || chosen.options.shape == draft::TreeShape::Merged;
    if (chosen.options.adapt_budget && merged)
        chosen.options.max_budget = riding_budget(run, target.config(), device_bytes, chosen.options, files.get());
    return chosen;
}

}  // namespace slipstream::tools
