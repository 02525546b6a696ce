// Passes over the views of several devices that share a model, each with that of its own layers or kv heads: a view of
// the whole model's KV where all of them stand for the same text, and of none else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/collective.h"
#include "runtime/ranks/rank_logits.h"
#include "runtime/ranks/rank_passes.h"
#include "runtime/view/view_passes.h"

namespace slipstream {

/// What one device has of it.
struct ViewRank {
    const Model* model = nullptr;        // of its shard, all of whose weights are resident (CHECKed)
    KvView* view = nullptr;              // of its layers, or of its kv heads
    std::vector<std::int64_t> layers{};  // of the whole model, ascending
    Collective* collective = nullptr;    // where matrices are split; null of all ranks: whole layers are shared out
};

class RankViewPasses final : public ViewPasses {
public:
    /// Ranks in the order of their rows of the LM head, views with room alike. What they point to outlives this. Takes
    /// memory of activations on every device, as DeviceViewPasses::device_bytes() says of its shard. Throws
    /// OutOfBudget.
    explicit RankViewPasses(const std::vector<ViewRank>& ranks);

    [[nodiscard]] std::int64_t vocab() const override { return logits_->vocab(); }
    [[nodiscard]] std::int64_t max_nodes() const override { return views_.front()->nodes().max_nodes(); }
    [[nodiscard]] std::int64_t n_text() const override;
    [[nodiscard]] std::int64_t n_slots() const override { return views_.front()->n_slots(); }
    NodeId add_node(NodeId parent) override;
    void forget() override;
    /// Throws RankFailed; the views are as before.
    [[nodiscard]] LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) override;

private:
    std::vector<std::unique_ptr<Forward>> forwards_;  // [ranks]
    std::vector<KvView*> views_;                      // [ranks]
    std::vector<PassKv*> kvs_;                        // [ranks]: the same
    std::unique_ptr<RankPasses> passes_;
    std::optional<RankLogits> logits_;
};

}  // namespace slipstream
