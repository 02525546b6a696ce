#include "draft/models/self_draft_model.h"

#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

SelfDraftModel::SelfDraftModel(std::int64_t vocab, const SamplerOptions& sampling, const SelfDraftOptions& options)
    : LogitSource({.n_ids = vocab,
                   .max_nodes = options.max_nodes,
                   .max_rows = kMostViewRows,
                   .rows = options.rows,
                   .rank_error = kViewRankError},
                  sampling, {}) {}

void SelfDraftModel::attach(ViewPasses& passes, PlannedSeconds planned_seconds) {
    CHECK(passes.vocab() == n_ids() && passes.max_nodes() >= max_nodes(), "a view of {} nodes for {}",
          passes.max_nodes(), max_nodes());
    passes_ = &passes;
    if (planned_seconds) pass_curve().replan(std::move(planned_seconds));
}

void SelfDraftModel::observe(const Observation& /*observation*/) {
    if (passes_ != nullptr) passes_->forget();
    forget_tree();
}

void SelfDraftModel::start_tree(std::span<const TokenId> text) {
    CHECK(ready(text), "a view of {} positions, a sequence of {}", passes_->n_text(), text.size());
    passes_->forget();
    lead(text.last(1));
}

LogitRows SelfDraftModel::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                              std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    return passes_->run(tokens, nodes, logit_tokens, needs);
}

}  // namespace slipstream::draft
