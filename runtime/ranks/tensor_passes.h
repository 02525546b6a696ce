// TensorPasses: passes of a model whose matrices are split among several devices (tensor parallelism). In every layer,
// each device has whole kv heads with the query heads that read them, columns of the feed-forward, and rows of the LM
// head. All devices compute at the same time, on one host thread each, and add their partial sums after each half of a
// layer. So each link carries, and each device reads, only its shard in a pass. Prompts are fed prefill chunk by
// prefill chunk.
//
// Batch invariance (E1) holds within one split: partial sums are added in the order of the ranks. The text of another
// split, or of one device, may differ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/ranks/rank_passes.h"
#include "runtime/ranks/rank_threads.h"

namespace slipstream {

class TensorPasses final : public RankPasses {
public:
    /// See make_rank_passes(). Each rank must have all layers and a collective (CHECKed). The collectives may serve
    /// other passes in turn.
    explicit TensorPasses(std::vector<Rank> ranks);

    /// Rank 0 runs on the caller's thread, and only it reads the pass control; on cancellation it sets a last layer, up
    /// to which the others run. If a rank fails, the sums of all ranks are aborted and restarted.
    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const RankPass& pass) override;
    [[nodiscard]] bool takes_prompt(std::span<KvCache* const> /*caches*/, std::int64_t /*begin*/,
                                    std::int64_t /*end*/) const override {
        return false;
    }
    [[nodiscard]] bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) override;

private:
    [[nodiscard]] std::int64_t n_layers() const { return ranks_.front().forward->n_layers(); }
    void run_rank(std::size_t rank, std::span<PassKv* const> kvs, const RankPass& pass);
    void reset_after_failure();
    void drop();

    std::vector<Rank> ranks_;
    std::vector<std::optional<Forward::Steps>> steps_;  // [ranks], steps of the running pass
    // Number of layers that the running pass computes. Rank 0 lowers it before it computes its part of the last of
    // these layers; the other ranks need that part, so they read the new value in time.
    std::atomic<std::int64_t> end_layer_{0};
    bool cancelled_ = false;
    RankThreads threads_;
};

}  // namespace slipstream
