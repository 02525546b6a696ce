// A target whose layers are shared out over several devices: each runs its own, one after the other, and hands the
// hidden rows on. Weights and KV of a layer live with its owner; while one device computes the rings of the others
// fill, so one host thread does for passes. Of a prompt each computes another piece (prompt_wave.h). Rows of the LM
// head are shared out likewise. The logits are those of one device of the kind, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/indexed.h"
#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/layer_rank.h"
#include "runtime/ranks/row_hop.h"

namespace slipstream {

class LayersTarget final : public Target {
public:
    /// All of `ranks` together have each layer and each row of the LM head once (CHECKed). What they point to outlives
    /// this, and may serve other targets in turn: those over the same caches see the same nodes. Hidden rows of prompts
    /// lie in `arena`, which outlives this; null: prompts go in pieces.
    explicit LayersTarget(std::vector<LayerRank> ranks, PinnedArena* arena = nullptr);

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] std::int64_t n_committed() const override { return first().cache->n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const override { return first().cache->n_nodes(); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return first().cache->position(node); }
    NodeId add_node(NodeId parent) override;
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    void truncate(std::int64_t n_tokens) override;
    [[nodiscard]] std::int64_t prompt_rows() const override { return first().cache->prompt_rows(); }
    void set_prompt_rows(std::int64_t n_tokens) override;

    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    /// Without a prompt it returns when all layers are enqueued; where devices do not share the host's memory it waits
    /// for each before the next one begins. Throws RankFailed.
    void begin(const TargetPass& pass) override;
    [[nodiscard]] LogitRows finish() override;

    void read_rows(NodeId node, std::byte* out) override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    void restore(std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

private:
    void check_between_passes() const;
    [[nodiscard]] const LayerRank& first() const { return ranks_.front(); }
    [[nodiscard]] bool run_pass(const TargetPass& pass);
    [[nodiscard]] bool run_layers(const PassWatch& watch);
    [[nodiscard]] bool run_prompt(const TargetPass& pass);
    void hop(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out);
    template <typename Steps>
    void take_logits(const TargetPass& pass, std::vector<std::optional<Steps>>& steps);
    void cut_back(std::int64_t n_tokens) noexcept;

    std::vector<LayerRank> ranks_;
    PinnedArena* arena_;
    Indexed<LayerOwner> owners_;  // [n_layers]
    std::int64_t vocab_ = 0;
    std::optional<RowHop> rows_;
    std::unique_ptr<float[]> logits_;                    // [max_logit_rows, vocab], gathered
    std::vector<std::optional<Forward::Steps>> passes_;  // [ranks], of the running pass
    std::vector<LogitRows> parts_;                       // [ranks], of its logits
    std::int64_t n_logits_ = 0;                          // rows that the pass has; 0: none, or it was given up
    std::int64_t extended_from_ = -1;                    // positions before extend(); -1: nothing is announced
    bool in_pass_ = false;
    bool failed_ = false;  // what was done last: positions may be lost, which forget() finds out
};

}  // namespace slipstream
