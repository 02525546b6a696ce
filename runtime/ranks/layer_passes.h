// A pass through devices that share the layers of a model: each runs its own, one after the other, and hands the hidden
// rows on; of the last layer's rows each makes its columns of the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/cache/pass_kv.h"
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/ranks/hidden_state_transfer.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_passes.h"

namespace slipstream {

/// One of the devices.
struct LayerPassesRank {
    Forward* forward = nullptr;          // over the model of its shard
    std::vector<std::int64_t> layers{};  // of the whole model, ascending
};

class LayerPasses final : public RankPasses {
public:
    /// All of `ranks` together have each layer once (CHECKed), and limits alike. What they point to outlives this.
    explicit LayerPasses(std::vector<LayerPassesRank> ranks);

    [[nodiscard]] const std::vector<LayerOwner>& owners() const { return owners_; }
    [[nodiscard]] std::int64_t n_layers() const { return std::ssize(owners_); }

    /// Where devices do not share the host's memory it waits for each before the next one begins.
    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const TargetPass& pass, std::span<PassHooks* const> hooks,
                           std::span<LogitRows> parts) override;
    /// The logits of a pass in steps [ranks] of the caller's: the last layer's rows are everybody's.
    template <typename Steps>
    void take_logits(const TargetPass& pass, std::vector<std::optional<Steps>>& steps, std::span<LogitRows> parts) {
        const std::size_t last = owners_.back().rank;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(*ranks_[rank].forward, kLmHeadStage, [&] {
                if (rank != last && !pass.logit_tokens.empty())
                    transfer(last, steps[last]->hidden(), rank, steps[rank]->hidden());
                parts[rank] = steps[rank]->logits(nullptr);
            });
    }

private:
    [[nodiscard]] bool run_layers(const PassControl& control);
    void transfer(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out);

    std::vector<LayerPassesRank> ranks_;
    std::vector<LayerOwner> owners_;  // [n_layers]
    std::optional<HiddenStateTransfer> rows_;
    std::vector<std::optional<Forward::Steps>> passes_;  // [ranks], of the running pass
};

}  // namespace slipstream
