// A target whose layers are shared out over several devices: each runs its own, one after the other, and hands the
// hidden rows on. Weights and KV of a layer live with its owner; while one device computes the rings of the others
// fill, so one host thread does for passes. Of a prompt each computes another prefill chunk (pipelined_prefill.h). Rows
// of the LM head are shared out likewise. The logits are those of one device of the kind, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/loop/target.h"
#include "runtime/ranks/layer_passes.h"
#include "runtime/ranks/rank_target.h"

namespace slipstream {

class LayersTarget final : public RankTarget {
public:
    /// All of `ranks` together have each layer and each row of the LM head once (CHECKed). What they point to outlives
    /// this, and may serve other targets in turn: those over the same caches see the same nodes. Hidden rows of prompts
    /// lie in `arena`, which outlives this; null: prompts go in prefill chunks.
    explicit LayersTarget(std::vector<LayerRank> ranks, PinnedArena* arena = nullptr);

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    /// Without a prompt it returns when all layers are enqueued; where devices do not share the host's memory it waits
    /// for each before the next one begins. Throws RankFailed.
    void begin(const TargetPass& pass) override;

    void read_rows(NodeId node, std::byte* out) override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    void restore(std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

private:
    [[nodiscard]] bool run_prompt(const TargetPass& pass, std::span<PassHooks* const> hooks);

    std::vector<LayerRank> layer_ranks_;
    std::vector<PassKv*> caches_;  // [ranks]
    PinnedArena* arena_;
    LayerPasses passes_;
};

}  // namespace slipstream
