#include "runtime/ranks/rank_target.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream {

RankTarget::RankTarget(std::vector<Rank> ranks, std::int64_t n_layers) : ranks_(std::move(ranks)), n_layers_(n_layers) {
    CHECK(!ranks_.empty());
    const Rank& first = ranks_.front();
    const ForwardLimits& limits = first.forward->limits();
    std::vector<Forward*> all;
    for (const Rank& rank : ranks_) {
        all.push_back(rank.forward);
        CHECK(rank.forward->limits().max_tokens == limits.max_tokens &&
                  rank.forward->limits().max_logit_rows == limits.max_logit_rows &&
                  rank.cache->max_nodes() == first.cache->max_nodes() &&
                  rank.cache->context_tokens() == first.cache->context_tokens(),
              "ranks of different limits");
    }
    logits_.emplace(all, limits.max_logit_rows);
}

TargetShape RankTarget::shape_but_kv() const {
    const Rank& first = ranks_.front();
    const ForwardLimits& limits = first.forward->limits();
    return {.context_tokens = first.cache->context_tokens(),
            .max_tokens = limits.max_tokens,
            .max_logit_rows = limits.max_logit_rows,
            .max_nodes = first.cache->max_nodes(),
            .has_prompt_kernels = std::ranges::any_of(
                ranks_, [](const Rank& rank) { return rank.forward->exec().device.has_prompt_kernels(); }),
            .n_layers = n_layers_};
}

NodeId RankTarget::add_node(NodeId parent) {
    const NodeId node = ranks_.front().cache->add_node(parent);
    for (const Rank& rank : std::span(ranks_).subspan(1))
        CHECK(rank.cache->add_node(parent) == node, "ranks number their nodes otherwise");
    return node;
}

void RankTarget::check_between_passes() const {
    CHECK(!in_pass_ && announced_from_ < 0, "the text changes {}",
          in_pass_ ? "in a pass" : "before an announced prompt");
}

// All of them or none: what a commit may lack is memory of the host, which is waited for first.
void RankTarget::commit(std::span<const NodeId> path) {
    check_between_passes();
    for (const Rank& rank : ranks_) rank.cache->await_room(std::ssize(path));
    const std::int64_t before = n_committed();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(rank, kKvStage, [&] {
                if (!views_.empty()) views_[rank]->commit(ranks_[rank].forward->exec(), path);
                ranks_[rank].cache->commit(ranks_[rank].forward->exec(), path);
            });
    } catch (...) {
        roll_back_to(before);
        throw;
    }
}

void RankTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    const std::int64_t from = std::exchange(announced_from_, -1);
    for (const Rank& rank : ranks_) {
        if (from < 0) {
            rank.cache->forget();
        } else {
            rank.cache->rollback(from);
        }
    }
    if (std::exchange(failed_, false)) roll_back_to(n_committed());
}

void RankTarget::truncate(std::int64_t n_tokens) {
    check_between_passes();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(rank, kKvStage, [&] { ranks_[rank].cache->truncate(ranks_[rank].forward->exec(), n_tokens); });
    } catch (...) {
        roll_back_to(n_tokens);
        throw;
    }
    for (ViewBuilder* view : views_) view->truncate(n_tokens);
}

void RankTarget::roll_back_to(std::int64_t n_tokens) noexcept {
    for (const Rank& rank : ranks_) n_tokens = std::min(n_tokens, rank.cache->keep_intact_prefix(rank.forward->exec()));
    for (std::size_t n_alike = 0; n_alike < ranks_.size();) {
        const Rank& rank = ranks_[n_alike++];
        try {
            rank.cache->truncate(rank.forward->exec(), n_tokens);
        } catch (...) {
            n_tokens = std::min(n_tokens, rank.cache->keep_intact_prefix(rank.forward->exec()));
            n_alike = 0;
        }
    }
    for (ViewBuilder* view : views_) view->truncate(n_committed());
}

void RankTarget::set_prompt_rows(std::int64_t n_tokens) {
    for (const Rank& rank : ranks_) rank.cache->set_prompt_rows(n_tokens);
}

void RankTarget::announce(std::int64_t end) {
    const std::int64_t from = n_committed();
    for (const Rank& rank : ranks_) rank.cache->reserve(end);
    announced_from_ = from;
}

void RankTarget::end_prompt() {
    announced_from_ = -1;
    set_prompt_rows(n_committed());
}

void RankTarget::open_pass() {
    CHECK(!in_pass_, "a pass is under way");
    n_logits_ = 0;
    failed_ = true;
}

void RankTarget::close_pass(std::int64_t n_logits) {
    n_logits_ = n_logits;
    in_pass_ = true;
}

void RankTarget::build_views_with(std::vector<ViewBuilder*> builders) {
    CHECK(!in_pass_ && (builders.empty() || builders.size() == ranks_.size()), "{} views of {} ranks", builders.size(),
          ranks_.size());
    views_ = std::move(builders);
    hooks_.assign(views_.size(), nullptr);
}

// A pass without logits is a prefill chunk of text that is fed: more is to come before anybody guesses. What a view is
// built in is decided for all ranks alike, as on a device that holds what all of them do.
std::span<PassHooks* const> RankTarget::begin_views(const TargetPass& pass) {
    if (views_.empty() || pass.logit_tokens.empty()) return {};
    even_views();
    const bool whole_layers =
        !pass.prompt.empty() || std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.cache->streams(); });
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        hooks_[rank] = views_[rank]->begin_pass(pass.logit_tokens.front(), whole_layers);
    return hooks_;
}

void RankTarget::end_views(bool complete) {
    try {
        for (std::size_t rank = 0; rank < views_.size(); ++rank)
            on_rank(rank, kKvStage, [&] { views_[rank]->end_pass(ranks_[rank].forward->exec(), complete); });
    } catch (...) {
        for (ViewBuilder* view : views_) view->restart();
        throw;
    }
    even_views();
}

// If one view is invalid, all are: a rank whose ring has no room for a whole layer is a pass later than the others. If
// one rank also has scores that another rank lacks (a view that is built once drops its scores), all drop them: else
// the ranks would score and build in turn, and no pass would find all views valid.
void RankTarget::even_views() {
    if (views_.empty()) return;
    const ViewBuilder& first = *views_.front();
    const bool even = std::ranges::all_of(views_, [&](ViewBuilder* view) {
        return view->view().n_text() == first.view().n_text() && view->view().n_slots() == first.view().n_slots();
    });
    if (even) return;
    const bool scored_alike =
        std::ranges::all_of(views_, [&](ViewBuilder* view) { return view->n_scored() == first.n_scored(); });
    for (ViewBuilder* view : views_) scored_alike ? view->view().invalidate() : view->restart();
}

LogitRows RankTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(rank, kLmHeadStage, [&] { ranks_[rank].forward->exec().stream.synchronize(); });
    end_views(n_logits_ > 0);
    failed_ = false;
    return logits_->gather(n_logits_);
}

}  // namespace slipstream
