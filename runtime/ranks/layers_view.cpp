#include "runtime/ranks/layers_view.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/naming.h"

namespace slipstream {

LayersViewPasses::LayersViewPasses(const std::vector<ViewRank>& ranks) {
    std::vector<RelayRank> of_relay;
    std::vector<Forward*> all;
    const std::int64_t max_nodes = ranks.front().view->nodes().max_nodes();
    for (const ViewRank& rank : ranks) {
        CHECK(!rank.model->streams_weights() && rank.model->config().n_layers == rank.view->n_layers() &&
                  rank.view->nodes().max_nodes() == max_nodes,
              "a view of {} layers and {} nodes", rank.view->n_layers(), rank.view->nodes().max_nodes());
        forwards_.push_back(std::make_unique<Forward>(*rank.model, view_pass_limits(max_nodes)));
        all.push_back(forwards_.back().get());
        views_.push_back(rank.view);
        kvs_.push_back(rank.view);
        of_relay.push_back({all.back(), rank.layers});
    }
    relay_.emplace(std::move(of_relay));
    logits_.emplace(all, view_pass_limits(max_nodes).max_logit_rows);
}

std::int64_t LayersViewPasses::n_text() const {
    const std::int64_t n_text = views_.front()->n_text();
    return std::ranges::all_of(views_, [&](const KvView* view) { return view->n_text() == n_text; }) ? n_text : 0;
}

NodeId LayersViewPasses::add_node(NodeId parent) {
    const NodeId node = views_.front()->add_node(parent);
    for (KvView* view : std::span(views_).subspan(1))
        CHECK(view->add_node(parent) == node, "views number their nodes otherwise");
    return node;
}

void LayersViewPasses::forget() {
    for (std::size_t rank = 0; rank < views_.size(); ++rank) {
        views_[rank]->forget();
        views_[rank]->await(forwards_[rank]->exec().stream);
    }
}

LogitRows LayersViewPasses::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& /*needs*/) {
    CHECK(relay_->run(kvs_, {.tokens = tokens, .nodes = nodes, .logit_tokens = logit_tokens}, {}, logits_->parts()));
    for (const auto& forward : forwards_) on_rank(*forward, kAtLmHead, [&] { forward->exec().stream.synchronize(); });
    return logits_->gather(std::ssize(logit_tokens));
}

}  // namespace slipstream
