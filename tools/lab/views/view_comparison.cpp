#include "tools/lab/views/view_comparison.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

double seconds_since(std::chrono::steady_clock::time_point began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// Last tokens that an oracle view keeps in any case. It chooses by the queries of the pass itself, so more gain
// nothing.
constexpr std::int64_t kOracleRecent = 64;

ForwardLimits view_limits(const ViewsRequest& request) {
    return {.max_tokens = kViewPassTokens,
            .max_logit_rows = kViewPassTokens,
            .pages = std::ranges::find(request.types, ViewType::Q4) != request.types.end()};
}

// One view to compare: its row in the table, and how it is built.
struct PlannedView {
    ViewFigures figures;
    ViewOptions options;
};

PlannedView planned_view(const ViewsRequest& request, const ViewFigures& figures, std::int64_t run_tokens) {
    ViewOptions options{.type = figures.type,
                        .budget_tokens = figures.budget_tokens,
                        .sink_tokens = request.sink_tokens,
                        .recent_tokens = figures.recent_tokens,
                        .rebuild_tokens = request.rebuild_tokens,
                        .half_life_tokens = request.half_life_tokens,
                        .growth_tokens = run_tokens,
                        .score_rows = figures.score_rows};
    if (figures.view == ComparedView::Window) options.kind = ViewKind::Window;
    if (figures.view == ComparedView::Heavy) options.half_life_tokens = std::numeric_limits<double>::infinity();
    if (figures.view == ComparedView::Mean) options.score = GroupScore::Mean;
    if (figures.view == ComparedView::Oracle) {  // rebuilt in every pass, by the queries of that pass
        options.rebuild_tokens = 1;
        options.half_life_tokens = 0;
    }
    if (options.rebuild_tokens > 0) options.growth_tokens = round_up(options.rebuild_tokens, view_pass_tokens(request));
    return {.figures = figures, .options = options};
}

// Returns the views of all combinations of the request's values. A value that has no effect on a kind of view is not
// varied for it.
std::vector<PlannedView> planned_views(const ViewsRequest& request, std::int64_t depth, std::int64_t run_tokens) {
    std::vector<PlannedView> planned;
    const auto add = [&](ComparedView view, ViewType type) {
        for (const std::int64_t budget : view_budgets(request, depth)) {
            std::vector<RecentTokens> recents{{.tokens = type == ViewType::Q4 ? kRecentRows : 0}};
            if (view == ComparedView::Oracle) recents = {{.tokens = kOracleRecent}};
            if (is_chosen_by_rows(view))
                recents = request.recents.empty() ? std::vector{RecentTokens{.percent = recent_percent(type)}}
                                                  : request.recents;
            // The last group may not be full, and pages hold full ones only.
            if (type == ViewType::Q4)
                for (RecentTokens& recent : recents) recent = {.tokens = std::max(recent.of(budget), kGroupTokens)};
            std::vector<std::int64_t> all_rows{view == ComparedView::Oracle ? view_pass_tokens(request) : 1};
            if (is_chosen_by_rows(view)) all_rows = request.score_rows;
            for (const RecentTokens& recent : recents)
                for (const std::int64_t rows : all_rows)
                    planned.push_back(planned_view(request,
                                                   {.view = view,
                                                    .type = type,
                                                    .budget_tokens = budget,
                                                    .recent_tokens = recent.of(budget),
                                                    .score_rows = rows},
                                                   run_tokens));
        }
    };
    for (const ComparedView view : request.views)
        for (const ViewType type : request.types) add(view, type);
    return planned;
}

// Returns the bytes of the tokens that a view keeps when it is built, divided by those of `depth` tokens.
double share_of_bytes(const ViewOptions& options, const ModelConfig& config, std::span<const KvLayout> kv,
                      std::int64_t depth) {
    const ViewRoom room = view_room(options, config, kViewPassTokens);
    double kept = 0.0;
    double all = 0.0;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const auto row = 2.0 * static_cast<double>(kv[layer].scratch_row_bytes());
        kept += row * static_cast<double>(std::min(options.row_tokens(), depth));
        all += row * static_cast<double>(depth);
        if (room.page_slots.empty()) continue;
        const std::int64_t n_pages = kv[layer].n_kv_heads * (room.page_slots[layer] / kPageSlots);
        kept += static_cast<double>(n_pages) * static_cast<double>(view_page_bytes(kv[layer].head_dim));
    }
    return all > 0.0 ? kept / all : 0.0;
}

}  // namespace

void SharedHooks::clear() {
    hooks_.clear();
    seconds_ = 0.0;
}

void SharedHooks::add(PassHooks* hooks) {
    if (hooks != nullptr) hooks_.push_back(hooks);
}

void SharedHooks::on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
                        std::int64_t n_committed) {
    exec.stream.synchronize();  // waits for the pass's own work, so that only the hooks are timed
    const auto began = std::chrono::steady_clock::now();
    for (PassHooks* hooks : hooks_) hooks->on_kv(exec, layer, segment, q, n_committed);
    exec.stream.synchronize();
    seconds_ += seconds_since(began);
}

ViewComparison::Compared::Compared(const Model& model, KvCache& cache, const ViewFigures& own_figures,
                                   const ViewOptions& options)
    : figures(own_figures),
      view(model.device(), cache.store().layouts(), view_room(options, model.config(), kViewPassTokens)),
      builder(cache, view, model, options) {}

ViewComparison::ViewComparison(const Model& model, KvCache& cache, Forward& target, const ViewsRequest& request,
                               std::int64_t depth, std::int64_t run_tokens)
    : cache_(&cache),
      target_(&target),
      forward_(model, view_limits(request)),
      sampler_(request.sampling, model.config().vocab) {
    for (const PlannedView& planned : planned_views(request, depth, run_tokens))
        views_.push_back(std::make_unique<Compared>(model, cache, planned.figures, planned.options));
    for (const auto& compared : views_)
        compared->figures.bytes =
            share_of_bytes(compared->builder.options(), model.config(), cache.store().layouts(), depth);
}

std::size_t ViewComparison::device_bytes(const ModelConfig& config, std::span<const KvLayout> kv,
                                         std::int64_t context_tokens, const ViewsRequest& request, std::int64_t depth,
                                         std::int64_t run_tokens) {
    std::size_t bytes = Forward::device_bytes(config, view_limits(request), Forward::Streaming::No);
    for (const PlannedView& planned : planned_views(request, depth, run_tokens))
        bytes += KvView::device_bytes(kv, view_room(planned.options, config, kViewPassTokens)) +
                 ViewBuilder::device_bytes(config, context_tokens);
    return bytes;
}

template <typename Kv>
ViewComparison::Rows ViewComparison::run(Forward& forward, Kv& kv, std::span<const TokenId> tokens, PassHooks* hooks) {
    nodes_.clear();
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        nodes_.push_back(kv.add_node(i == 0 ? kCommittedTip : nodes_.back()));
        rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto began = std::chrono::steady_clock::now();
    const LogitRows logits =
        forward.run(kv, tokens, nodes_, rows, sampler_.sample_request(), {.cancel = &cancel_flag()}, hooks);
    throw_if_interrupted();
    return {.logits = logits, .seconds = seconds_since(began)};
}

// Returns the predicted token for each position of the pass.
std::vector<TokenId> ViewComparison::choose(const LogitRows& rows) {
    std::vector<TokenId> chosen;
    for (std::int64_t i = 0; i < rows.rows(); ++i)
        chosen.push_back(sampler_.sample(rows, i, cache_->n_committed() + i + 1, {}));
    return chosen;
}

void ViewComparison::run_view(Compared& compared, std::span<const TokenId> tokens) {
    compared.chosen.clear();
    if (compared.view.n_text() == 0) return;
    compared.view.await(forward_.exec().stream);
    const Rows rows = run(forward_, compared.view, tokens, nullptr);
    compared.chosen = choose(rows.logits);
    compared.figures.seconds += rows.seconds;
    compared.view.forget();
}

void ViewComparison::run_target(std::span<const TokenId> tokens) {
    hooks_.clear();
    for (const auto& compared : views_) hooks_.add(compared->builder.begin_pass(0, true));
    const Rows rows = run(*target_, *cache_, tokens, hooks_.empty() ? nullptr : &hooks_);
    for (const auto& compared : views_) compared->builder.end_pass(target_->exec(), true);
    chosen_ = choose(rows.logits);
    target_seconds_ = rows.seconds - hooks_.seconds();
}

void ViewComparison::commit(std::span<const NodeId> path) {
    for (const auto& compared : views_) compared->builder.commit(target_->exec(), path);
    cache_->commit(target_->exec(), path);
}

void ViewComparison::begin(std::span<const TokenId> tokens) {
    run_target(tokens);
    commit(nodes_);
}

void ViewComparison::compare(std::span<const TokenId> tokens) {
    const auto is_oracle = [](const Compared& compared) { return compared.figures.view == ComparedView::Oracle; };
    for (const auto& compared : views_)
        if (!is_oracle(*compared)) run_view(*compared, tokens);
    run_target(tokens);
    const std::vector<NodeId> path = nodes_;
    for (const auto& compared : views_) {
        if (is_oracle(*compared)) run_view(*compared, tokens);
        if (compared->chosen.empty()) continue;
        ViewFigures& figures = compared->figures;
        figures.target_seconds += target_seconds_;
        figures.positions += std::ssize(tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) figures.equal += compared->chosen[i] == chosen_[i] ? 1 : 0;
    }
    commit(path);
}

std::vector<ViewFigures> ViewComparison::figures() const {
    std::vector<ViewFigures> figures;
    for (const auto& compared : views_) figures.push_back(compared->figures);
    return figures;
}

}  // namespace slipstream::tools
