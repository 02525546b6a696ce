#include "draft/rungs/target_view.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Of one pass: rows of logits over a large vocabulary take more memory than a view does.
constexpr std::int64_t kMostRows = 16;

ForwardLimits limits_of(std::int64_t max_nodes) {
    const std::int64_t n = std::min(kMostRows, max_nodes);
    return {.max_tokens = n, .max_logit_rows = n};
}

}  // namespace

TargetView::TargetView(std::int64_t vocab, const SamplerOptions& sampling, const TargetViewOptions& options)
    : LogitSource({.n_ids = vocab, .max_nodes = options.max_nodes, .max_rows = kMostRows, .rows = options.rows},
                  sampling, {}) {}

void TargetView::attach(const Model& model, KvView& view, PlannedSeconds planned_seconds) {
    CHECK(!model.streams_weights() && model.config().vocab == n_ids() && view.nodes().max_nodes() >= max_nodes(),
          "a view of {} nodes for {}", view.nodes().max_nodes(), max_nodes());
    forward_.emplace(model, limits_of(max_nodes()));
    view_ = &view;
    if (planned_seconds) pass_curve()->replan(std::move(planned_seconds));
}

std::size_t TargetView::device_bytes(const ModelConfig& config, std::int64_t max_nodes) {
    return Forward::device_bytes(config, limits_of(max_nodes), Forward::Streaming::No);
}

void TargetView::observe(const Observation& /*observation*/) {
    if (view_ != nullptr) view_->forget();
    forget_tree();
}

void TargetView::start_tree(std::span<const TokenId> text) {
    CHECK(ready(text), "a view of {} positions, a text of {}", view_->n_text(), text.size());
    view_->forget();
    view_->await(forward_->exec().stream);
    lead(text.last(1));
}

LogitRows TargetView::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    return forward_->run(*view_, tokens, nodes, logit_tokens, needs, {});
}

}  // namespace slipstream::draft
