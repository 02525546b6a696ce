// RankTarget: the target over one or several devices (ranks), however they share the model (rank_passes.h). It keeps
// the nodes and committed positions, which the caches of all ranks have in common; lets KV views follow the passes;
// combines the ranks' KV to that of the whole model; and restores a common state after an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/hidden_tail.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_logits.h"
#include "runtime/ranks/rank_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

class RankTarget final : public Target {
public:
    /// `caches` [ranks] hold the KV of the ranks' layers and kv heads. Ranks are in the order of their rows of the LM
    /// head and of their kv heads; limits, context and number of nodes must be equal (CHECKed). Everything that `ranks`
    /// and `caches` point to must outlive this object. It may serve other targets in turn: targets over the same caches
    /// see the same nodes. `arena` and errors: see make_rank_passes().
    RankTarget(const std::vector<Rank>& ranks, std::vector<KvCache*> caches, PinnedArena* arena = nullptr);
    /// A target on one device.
    RankTarget(Forward& forward, KvCache& cache) : RankTarget({Rank{.forward = &forward}}, {&cache}) {}
    /// Waits for what a failed pass left on the streams of the ranks: it may write to a HiddenTail, or read host
    /// memory.
    ~RankTarget() override;
    RankTarget(const RankTarget&) = delete;
    RankTarget& operator=(const RankTarget&) = delete;

    /// Makes `builders` [ranks], each over its rank's cache, follow each pass and each commit from now on; empty: no
    /// views follow. They must outlive this object. Must not be called during a pass (CHECKed). The views of all ranks
    /// are valid for a sequence together, or all are invalid.
    void build_views_with(std::vector<ViewBuilder*> builders);

    /// Makes `tail` follow each pass and each commit from now on; null: none does. It must outlive this object. Must
    /// not be called during a pass (CHECKed).
    void keep_hidden_in(HiddenTail* tail);
    /// Notes in `choices` [ranks] what the tokens of each pass choose from now on, and counts those that are committed,
    /// for the slots of experts; empty: neither. They must outlive this object, and have room for the nodes of the
    /// caches. Must not be called during a pass (CHECKed).
    void note_choices_in(std::vector<ExpertChoices*> choices);
    /// Returns the device with the last layer, from which hidden states come.
    [[nodiscard]] Device& hidden_device() const { return exec(owners_.back().front().rank).device; }

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] std::int64_t n_committed() const override { return caches_.front()->n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const override { return caches_.front()->n_nodes(); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return caches_.front()->position(node); }
    NodeId add_node(NodeId parent, NodeKind kind = NodeKind::Draft) override;
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    [[nodiscard]] std::int64_t positions_after_cut(std::int64_t n_tokens) const override;
    void truncate(std::int64_t n_tokens) override;
    [[nodiscard]] std::uint64_t chunk_version(std::int64_t chunk) const override;
    void recommit(std::int64_t n_tokens) override;

    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    [[nodiscard]] bool takes_saved_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    /// Begins `pass`, as Target::begin() says. With several ranks, begin() and finish() throw errors of the pass as
    /// on_rank() does (rank.h).
    void begin(const TargetPass& pass) override;
    [[nodiscard]] LogitRows finish() override;

    void read_rows(NodeId node, std::byte* out) override;
    [[nodiscard]] std::int64_t first_kept_chunk(std::int64_t layer) const override;
    [[nodiscard]] std::int64_t first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    [[nodiscard]] std::int64_t last_state(std::int64_t n_tokens, std::int64_t step) const override;
    void read_state(std::int64_t layer, std::int64_t position, std::byte* out) override;
    void restore_states(std::int64_t position, const std::function<void(std::int64_t, std::byte*)>& read) override;
    void restore(std::int64_t first, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

private:
    void check_between_passes() const;
    [[nodiscard]] std::span<PassHooks* const> begin_views(const TargetPass& pass);
    void end_views(bool complete);
    void even_views();
    void roll_back_to(std::int64_t n_tokens) noexcept;
    void restore_chunk(std::int64_t n_tokens, std::int64_t layer, std::int64_t chunk, const std::byte* from);
    [[nodiscard]] ExecRef exec(std::size_t rank) const { return ranks_[rank].forward->exec(); }
    /// Returns the layout of the owner's part of a layer.
    [[nodiscard]] const KvLayout& layout(const LayerOwner& owner) const {
        return caches_[owner.rank]->layout(owner.layer);
    }

    std::vector<Rank> ranks_;
    std::vector<KvCache*> caches_;                 // [ranks]
    std::vector<PassKv*> kvs_;                     // [ranks], caches_ as PassKv
    std::vector<std::vector<LayerOwner>> owners_;  // [layers of the whole model][owners]
    std::vector<KvLayout> kv_;                     // [layers of the whole model]: layout of all kv heads of a layer
    std::unique_ptr<RankPasses> passes_;
    RankLogits logits_;
    std::vector<ViewBuilder*> views_;      // [ranks], or none
    std::vector<PassHooks*> hooks_;        // [ranks], hooks of the running pass
    HiddenTail* tail_ = nullptr;           // null: no hidden states are kept
    std::span<const NodeId> nodes_;        // of the running pass, for tail_
    std::vector<ExpertChoices*> choices_;  // [ranks]; empty: choices are not noted
    std::vector<std::byte> rows_;  // [layers][K|V] of any one rank, for read_rows(); empty if ranks have whole layers
    std::int64_t n_logits_ = 0;    // logits rows of the running pass; 0: none were requested, or it was cancelled
    std::int64_t extended_from_ = -1;  // positions before extend(); -1: no prompt is announced
    bool in_pass_ = false;
    bool failed_ = false;  // the last operation failed: forget() must find out which positions are lost
};

}  // namespace slipstream
