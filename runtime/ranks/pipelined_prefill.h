// Layer-major prefill over several devices: all prefill chunks of the prompt pass through a layer, and the device that
// has the next layer takes each chunk as soon as its hidden rows are there. So each weight crosses its link once per
// prompt, and all devices compute at the same time.
//
// Between two layers, the hidden rows of all prefill chunks are in host memory. A CPU device computes on the thread
// that calls it, so each CPU device has a thread of its own; GPUs only enqueue work, and share the caller's thread.
// Each thread takes its layers in the model's order, and all prefill chunks of one layer in turn, and waits only for
// the rows of a chunk from the layer before. So no two threads can wait for each other.
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
    /// Whether prompt positions [begin, end) can pass through `ranks` layer by layer: they end at the end of a prefill
    /// chunk, every ring can hold what it needs at one time, and `arena` has room for the hidden rows.
    [[nodiscard]] static bool fits(std::span<const Rank> ranks, std::span<KvCache* const> caches,
                                   const PinnedArena& arena, std::int64_t begin, std::int64_t end);

    /// Prepares the prompt of `pass` from position `begin` on, or from its saved state, whose positions are reserved in
    /// `caches` [ranks], and the tokens of `pass` after it. `owners` is [layers of the whole model]. All arguments must
    /// outlive this object. Throws as on_rank() does, OutOfBudget.
    PipelinedPrefill(std::span<const Rank> ranks, const std::vector<LayerOwner>& owners,
                     std::span<KvCache* const> caches, PinnedArena& arena, std::int64_t begin, const RankPass& pass);
    /// Waits for enqueued work.
    ~PipelinedPrefill();
    PipelinedPrefill(const PipelinedPrefill&) = delete;
    PipelinedPrefill& operator=(const PipelinedPrefill&) = delete;

    /// Runs all layers. Returns false if `control` cancelled it. Progress is reported, and the prompt is saved, on the
    /// caller's thread; while save() runs, no device computes. Throws the first error of any thread, or
    /// OutOfBudget if the system starts no more threads, after all threads have ended.
    [[nodiscard]] bool run(const PassControl& control);
    /// Returns the steps of each rank, [ranks]. After run(), their residual streams hold the tokens that follow the
    /// prompt; only the owner of the last layer has their final rows.
    [[nodiscard]] std::vector<std::optional<Forward::PromptSteps>>& steps() { return steps_; }

private:
    using Lane = std::vector<std::int64_t>;  // layers that one thread runs

    // Progress of a prefill chunk between two layers.
    struct Rows {
        std::int64_t n_layers = 0;  // layers that the prefill chunk has passed through
        std::uint64_t use = 0;  // use of sent_ of the last layer's owner, if that owner is a GPU; 0: the rows are there
    };

    [[nodiscard]] std::vector<Lane> lanes() const;
    void run_lane(const Lane& lane, const PassControl& control, bool is_caller);
    void report(const PassControl& control);
    template <typename IsReady>
    [[nodiscard]] bool await(std::unique_lock<std::mutex>& lock, const PassControl* caller, const IsReady& is_ready);
    [[nodiscard]] std::optional<std::uint64_t> await_rows(std::int64_t layer, std::int64_t prefill_chunk,
                                                          const PassControl* caller);
    void await_lanes(const PassControl& control);
    void run_step(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    void take_rows(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    [[nodiscard]] std::uint64_t give_rows(std::int64_t layer, std::int64_t prefill_chunk);
    void pass_on(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    void restore();
    void pause_and_save();
    void save();
    [[nodiscard]] std::int64_t n_done() const;
    [[nodiscard]] PromptState state() const;
    [[nodiscard]] Forward::PromptSteps& steps_of(std::int64_t layer) { return *steps_[(*owners_)[layer].rank]; }
    [[nodiscard]] std::int64_t n_steps() const { return n_prefill_chunks_ * std::ssize(*owners_); }
    void stop(std::exception_ptr failure);
    [[nodiscard]] ExecRef exec(std::size_t rank) const { return ranks_[rank].forward->exec(); }

    std::span<const Rank> ranks_;
    const std::vector<LayerOwner>* owners_;
    const PromptCheckpoints* checkpoints_;  // null: the prompt is not saved
    PromptState begun_;                     // where it begins
    std::int64_t n_prefill_chunks_ = 0;
    std::optional<HiddenStates> states_;
    std::vector<std::unique_ptr<Event>> sent_;  // [ranks]: recorded when a rank's hidden rows are copied to states_
    std::vector<std::optional<Forward::PromptSteps>> steps_;  // [ranks]

    mutable std::mutex mutex_;  // guards the following members
    std::condition_variable changed_;
    std::vector<Rows> rows_;      // [n_prefill_chunks]
    std::int64_t n_done_ = 0;     // steps done of n_steps(); a step is a prefill chunk through a layer
    std::int64_t n_running_ = 0;  // steps that run
    bool paused_ = false;         // no further step begins
    bool stopped_ = false;
    std::exception_ptr failure_;  // the first failure
};

}  // namespace slipstream
