#include "runtime/ranks/view_passes.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

ForwardLimits pass_limits(std::int64_t max_nodes, bool has_pages) {
    const std::int64_t n = std::min(kMostViewRows, max_nodes);
    return {.max_tokens = n, .max_logit_rows = n, .pages = has_pages};
}

}  // namespace

ViewPasses::ViewPasses(std::vector<Rank> ranks, std::vector<KvView*> views)
    : ranks_(std::move(ranks)), views_(std::move(views)), kvs_(views_.begin(), views_.end()) {
    CHECK(views_.size() == ranks_.size(), "{} views of {} ranks", views_.size(), ranks_.size());
    const bool has_pages = std::ranges::any_of(views_, [](const KvView* view) { return view->has_pages(); });
    const ForwardLimits limits = pass_limits(max_nodes(), has_pages);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        const Model& model = ranks_[i].forward->model();
        CHECK(!model.streams_weights() && model.config().n_layers() == views_[i]->n_layers() &&
                  views_[i]->nodes().max_nodes() == max_nodes(),
              "a view of {} layers and {} nodes", views_[i]->n_layers(), views_[i]->nodes().max_nodes());
        forwards_.push_back(std::make_unique<Forward>(model, limits, nullptr, ranks_[i].collective));
        ranks_[i].forward = forwards_.back().get();
    }
    passes_ = make_rank_passes(ranks_);
    logits_.emplace(ranks_, limits.max_logit_rows);
}

std::size_t ViewPasses::device_bytes(const ModelConfig& config, std::int64_t max_nodes, bool has_pages) {
    return Forward::device_bytes(config, pass_limits(max_nodes, has_pages), Forward::Streaming::No);
}

std::int64_t ViewPasses::n_text() const {
    const std::int64_t n_text = views_.front()->n_text();
    return std::ranges::all_of(views_, [&](const KvView* view) { return view->n_text() == n_text; }) ? n_text : 0;
}

NodeId ViewPasses::add_node(NodeId parent) {
    const NodeId node = views_.front()->add_node(parent);
    for (KvView* view : std::span(views_).subspan(1))
        CHECK(view->add_node(parent) == node, "views number their nodes differently");
    return node;
}

void ViewPasses::forget() {
    for (std::size_t rank = 0; rank < views_.size(); ++rank) {
        views_[rank]->forget();
        views_[rank]->await(forwards_[rank]->exec().stream);
    }
}

LogitRows ViewPasses::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    const TargetPass pass{.tokens = tokens, .nodes = nodes, .logit_tokens = logit_tokens, .needs = needs};
    const bool complete = passes_->run(kvs_, {.pass = &pass, .hooks = {}, .logits = logits_->parts()});
    CHECK(complete, "a pass over views was cancelled");
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_, rank, kLmHeadStage, [&] { forwards_[rank]->exec().stream.synchronize(); });
    return logits_->gather(std::ssize(logit_tokens));
}

}  // namespace slipstream
