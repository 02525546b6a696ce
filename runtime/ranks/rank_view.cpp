#include "runtime/ranks/rank_view.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/error_context.h"
#include "runtime/ranks/layer_passes.h"
#include "runtime/ranks/tensor_passes.h"

namespace slipstream {

namespace {

std::unique_ptr<RankPasses> passes_of(std::span<Forward* const> forwards, const std::vector<ViewRank>& ranks) {
    std::vector<LayerPassesRank> in_turn;
    std::vector<SummingRank> at_once;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        in_turn.push_back({forwards[rank], ranks[rank].layers});
        at_once.push_back({forwards[rank], ranks[rank].collective});
    }
    if (ranks.front().collective != nullptr) return std::make_unique<TensorPasses>(std::move(at_once));
    return std::make_unique<LayerPasses>(std::move(in_turn));
}

}  // namespace

RankViewPasses::RankViewPasses(const std::vector<ViewRank>& ranks) {
    std::vector<Forward*> all;
    const std::int64_t max_nodes = ranks.front().view->nodes().max_nodes();
    for (const ViewRank& rank : ranks) {
        CHECK(!rank.model->streams_weights() && rank.model->config().n_layers == rank.view->n_layers() &&
                  rank.view->nodes().max_nodes() == max_nodes,
              "a view of {} layers and {} nodes", rank.view->n_layers(), rank.view->nodes().max_nodes());
        forwards_.push_back(
            std::make_unique<Forward>(*rank.model, view_pass_limits(max_nodes), nullptr, rank.collective));
        all.push_back(forwards_.back().get());
        views_.push_back(rank.view);
        kvs_.push_back(rank.view);
    }
    passes_ = passes_of(all, ranks);
    logits_.emplace(all, view_pass_limits(max_nodes).max_logit_rows);
}

std::int64_t RankViewPasses::n_text() const {
    const std::int64_t n_text = views_.front()->n_text();
    return std::ranges::all_of(views_, [&](const KvView* view) { return view->n_text() == n_text; }) ? n_text : 0;
}

NodeId RankViewPasses::add_node(NodeId parent) {
    const NodeId node = views_.front()->add_node(parent);
    for (KvView* view : std::span(views_).subspan(1))
        CHECK(view->add_node(parent) == node, "views number their nodes otherwise");
    return node;
}

void RankViewPasses::forget() {
    for (std::size_t rank = 0; rank < views_.size(); ++rank) {
        views_[rank]->forget();
        views_[rank]->await(forwards_[rank]->exec().stream);
    }
}

LogitRows RankViewPasses::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                              std::span<const std::int32_t> logit_tokens, const LogitRequest& /*needs*/) {
    CHECK(passes_->run(kvs_, {.tokens = tokens, .nodes = nodes, .logit_tokens = logit_tokens}, {}, logits_->parts()));
    for (const auto& forward : forwards_)
        on_rank(*forward, kLmHeadStage, [&] { forward->exec().stream.synchronize(); });
    return logits_->gather(std::ssize(logit_tokens));
}

}  // namespace slipstream
