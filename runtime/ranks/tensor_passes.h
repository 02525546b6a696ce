// Passes of a model whose matrices are split among several devices: all compute at the same time, a host thread each,
// and sum up what each half of a layer makes; so each link carries, and each device reads, its share of a pass.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/collective.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/rank_passes.h"
#include "runtime/ranks/rank_threads.h"

namespace slipstream {

/// One of the devices.
struct SummingRank {
    Forward* forward = nullptr;        // over its shard, sums by `collective`
    Collective* collective = nullptr;  // as this rank calls it
};

class TensorPasses final : public RankPasses {
public:
    /// Models of all layers (CHECKed). What `ranks` point to outlives this; collectives may serve others in turn.
    /// Throws OutOfBudget where the system starts no more threads.
    explicit TensorPasses(std::vector<SummingRank> ranks);

    [[nodiscard]] std::int64_t n_layers() const { return ranks_.front().forward->n_layers(); }
    /// A pass is given up by the first rank, whose thread is the caller's and which alone asks the watch: the others go
    /// on to the end of the layer that it names. Where one fails the sums of all are aborted, and begin anew.
    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const TargetPass& pass, std::span<PassHooks* const> hooks,
                           std::span<LogitRows> parts) override;

private:
    // What the threads of one pass share.
    struct Pass {
        std::span<PassKv* const> kvs;
        const TargetPass* asked;
        std::span<PassHooks* const> hooks;
        std::span<LogitRows> parts;
    };
    void run_rank(std::size_t rank, const Pass& pass);
    void check_cancelled(std::int64_t layer, const PassControl& control);
    void reset_after_failure();
    void drop();

    std::vector<SummingRank> ranks_;
    std::vector<std::optional<Forward::Steps>> passes_;  // [ranks], of the running pass
    // Of the running pass: layers that it runs, which the first rank changes before all others can have come that far.
    std::atomic<std::int64_t> end_layer_{0};
    bool given_up_ = false;
    RankThreads threads_;
};

}  // namespace slipstream
