// Layer-major prefill over several devices: all prefill chunks pass through a layer, and the device that has the next
// layer takes each chunk as soon as its rows are there. So each weight crosses its link once per prompt, and all
// devices compute.
//
// Hidden rows of all prefill chunks are in host memory between two layers. A CPU device computes on its caller's
// thread, so each CPU device has a thread; cards only enqueue work, and share the caller's thread. Every thread takes
// its layers in the model's order and all prefill chunks of one layer in turn, and waits only for a chunk's rows from
// the layer before: so no two threads wait for each other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/hidden_states.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_passes.h"

namespace slipstream {

class PipelinedPrefill {
public:
    /// Whether prompt positions [begin, end) can pass through `ranks` in this way: they end at a prefill chunk's end,
    /// every ring holds what it needs at once, and `arena` has room for the hidden rows.
    [[nodiscard]] static bool fits(std::span<const Rank> ranks, std::span<KvCache* const> caches,
                                   const PinnedArena& arena, std::int64_t begin, std::int64_t end);

    /// The prompt of `pass` from position `begin`, reserved in `caches` [ranks], and the pass after it. `owners`
    /// [layers of the whole model]. All outlive this. Throws RankFailed, OutOfBudget.
    PipelinedPrefill(std::span<const Rank> ranks, const std::vector<LayerOwner>& owners,
                     std::span<KvCache* const> caches, PinnedArena& arena, std::int64_t begin, const RankPass& pass);
    /// Waits for enqueued work.
    ~PipelinedPrefill();
    PipelinedPrefill(const PipelinedPrefill&) = delete;
    PipelinedPrefill& operator=(const PipelinedPrefill&) = delete;

    /// Runs all layers; false where `control` cancelled it. The caller's thread reports progress. Throws the first
    /// RankFailed of any thread, after all have ended.
    [[nodiscard]] bool run(const PassControl& control);
    /// [ranks]. After run() the residual streams hold the pass after the prompt; the last layer's owner has its rows.
    [[nodiscard]] std::vector<std::optional<Forward::PromptSteps>>& steps() { return steps_; }

private:
    using Lane = std::vector<std::int64_t>;  // the layers of one thread

    // Where a prefill chunk is between two layers.
    struct Rows {
        std::int64_t n_layers = 0;  // that it has passed through
        std::uint64_t use = 0;      // of sent_ of the last layer's owner, if that is a card; 0: the rows are there
    };

    [[nodiscard]] std::vector<Lane> lanes() const;
    void run_lane(const Lane& lane, const PassControl& control, bool is_caller);
    [[nodiscard]] std::optional<std::uint64_t> await_rows(std::int64_t layer, std::int64_t prefill_chunk);
    void run_step(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    void take_rows(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    [[nodiscard]] std::uint64_t give_rows(std::int64_t layer, std::int64_t prefill_chunk);
    void pass_on(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    [[nodiscard]] std::int64_t n_done() const;
    [[nodiscard]] std::int64_t n_steps() const { return n_prefill_chunks_ * std::ssize(*owners_); }
    void stop(std::exception_ptr failure);
    [[nodiscard]] ExecRef exec(std::size_t rank) const { return ranks_[rank].forward->exec(); }

    std::span<const Rank> ranks_;
    const std::vector<LayerOwner>* owners_;
    std::int64_t n_prefill_chunks_ = 0;
    std::optional<HiddenStates> states_;
    std::vector<std::unique_ptr<Event>> sent_;                // [ranks]: rows are in states_
    std::vector<std::optional<Forward::PromptSteps>> steps_;  // [ranks]

    mutable std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::vector<Rows> rows_;   // [n_prefill_chunks]
    std::int64_t n_done_ = 0;  // of n_steps(): a prefill chunk through a layer
    bool stopped_ = false;
    std::exception_ptr failure_;  // the first
};

}  // namespace slipstream
