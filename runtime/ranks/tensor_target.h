// A target whose matrices are split among several devices: each has whole kv heads with the query heads that read them,
// columns of the feed-forward and rows of the LM head, in every layer (tensor_passes.h).
//
// E1 holds for a split: sums have the order of the ranks. Texts of another split, or of one device, may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/collective.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/tensor_passes.h"

namespace slipstream {

/// What one device has of it.
struct TensorRank {
    Forward* forward = nullptr;        // over its shard, sums by `collective`
    KvCache* cache = nullptr;          // of its kv heads, all layers
    Collective* collective = nullptr;  // as this rank calls it
};

class TensorTarget final : public RankTarget {
public:
    /// Shares in the order of kv heads and of rows of the vocabulary. What they point to outlives this, and may serve
    /// other targets in turn: those over the same caches see the same nodes.
    explicit TensorTarget(const std::vector<TensorRank>& ranks);

    [[nodiscard]] TargetShape shape() const override;

    /// Prompts are fed in prefill chunks.
    [[nodiscard]] bool takes_prompt(std::int64_t /*end*/) const override { return false; }
    void extend(std::int64_t end) override;
    /// Returns when all ranks have enqueued their parts. Throws RankFailed.
    void begin(const TargetPass& pass) override;

    void read_rows(NodeId node, std::byte* out) override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    void restore(std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

private:
    KvShape kv_;                   // of the whole model
    std::vector<PassKv*> caches_;  // [ranks]
    std::vector<std::byte> row_;   // [layers][K|V] of one rank
    TensorPasses passes_;
};

}  // namespace slipstream
