// What targets over several devices have in common, however the model is split among them: nodes and committed
// positions, which every rank's cache has alike, views that follow them, logits whose columns the ranks make, and what
// is left when one fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cache/kv_cache.h"
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_logits.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

class RankTarget : public Target {
public:
    /// From now on `builders` [ranks], each of its rank's cache, see each pass and each commit; none: nobody does. They
    /// outlive this. Views of all ranks stand for a text together, or none does.
    void build_views_with(std::vector<ViewBuilder*> builders);

    [[nodiscard]] std::int64_t n_committed() const override { return ranks_.front().cache->n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const override { return ranks_.front().cache->n_nodes(); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return ranks_.front().cache->position(node); }
    NodeId add_node(NodeId parent) override;
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    void truncate(std::int64_t n_tokens) override;
    [[nodiscard]] std::int64_t prompt_rows() const override { return ranks_.front().cache->prompt_rows(); }
    void set_prompt_rows(std::int64_t n_tokens) override;
    [[nodiscard]] LogitRows finish() override;

protected:
    /// `n_layers` of the whole model. The ranks have rows of the LM head in order. What they point to outlives this,
    /// and may serve other targets in turn: those over the same caches see the same nodes.
    RankTarget(std::vector<Rank> ranks, std::int64_t n_layers);

    /// All of it but the KV.
    [[nodiscard]] TargetShape shape_but_kv() const;
    [[nodiscard]] std::span<const Rank> ranks() const { return ranks_; }
    [[nodiscard]] std::int64_t n_layers() const { return n_layers_; }
    [[nodiscard]] bool in_pass() const { return in_pass_; }

    /// A pass of `n_logits` rows begins: until it is through positions may be lost, which forget() finds out.
    void open_pass();
    /// Where views follow, it begins for them: the hooks of each rank, or none.
    [[nodiscard]] std::span<PassHooks* const> begin_views(const TargetPass& pass);
    /// It is on its way with so many rows of logits, in parts(); 0: it was given up.
    void close_pass(std::int64_t n_logits);
    /// [ranks], of the running pass's logits.
    [[nodiscard]] std::span<LogitRows> parts() { return logits_->parts(); }
    /// What `call` throws is thrown as RankFailed, which names that device and `layer` (kKvStage, kLmHeadStage).
    template <typename Call>
    void on_rank(std::size_t rank, std::int64_t layer, const Call& call) const {
        slipstream::on_rank(*ranks_[rank].forward, layer, call);
    }
    /// CHECKs that the text may change now.
    void check_between_passes() const;
    /// Positions up to `end` are taken by the prompt that comes with the next pass.
    void announce(std::int64_t end);
    /// That prompt is committed everywhere.
    void end_prompt();
    /// Positions before an announced prompt; -1: there is none.
    [[nodiscard]] std::int64_t announced_from() const { return announced_from_; }
    /// After an error: every rank holds the same text again, the first n_tokens or as many of them as all have whole. A
    /// cut that fails costs the chunk that it ends in.
    void roll_back_to(std::int64_t n_tokens) noexcept;
    void set_failed(bool failed) { failed_ = failed; }

private:
    void end_views(bool complete);
    void even_views();

    std::vector<Rank> ranks_;
    std::int64_t n_layers_;
    std::vector<ViewBuilder*> views_;  // [ranks], or none
    std::vector<PassHooks*> hooks_;    // [ranks], of the running pass
    std::optional<RankLogits> logits_;
    std::int64_t n_logits_ = 0;  // rows that the pass has; 0: none, or it was given up
    std::int64_t announced_from_ = -1;
    bool in_pass_ = false;
    bool failed_ = false;  // what was done last: positions may be lost, which forget() finds out
};

}  // namespace slipstream
