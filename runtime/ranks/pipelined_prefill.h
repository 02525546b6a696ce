// A prompt through all ranks, layer by layer: all its prefill chunks go through a layer, and the device that has the
// next one begins with each as soon as it is there. So each weight crosses its link once a prompt, and all devices
// compute.
//
// Hidden rows of all prefill chunks lie in host memory between two layers. A CPU device computes on its caller's
// thread, so each has a thread; cards, whose work is enqueued only, share the caller's. Every thread takes its layers
// in the model's order and all prefill chunks of one in turn, and waits for nothing but a prefill chunk's rows from the
// layer before: so no two wait for each other.
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
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/rank.h"

namespace slipstream {

class PipelinedPrefill {
public:
    /// Whether a prompt at positions [begin, end) may go through `ranks` so: it ends at a prefill chunk's end, every
    /// ring holds what it needs at once, and `arena` the hidden rows.
    [[nodiscard]] static bool fits(std::span<const LayerRank> ranks, const PinnedArena& arena, std::int64_t begin,
                                   std::int64_t end);

    /// The prompt of `pass` from position `begin` on, reserved in the caches of all ranks, and the pass behind it.
    /// `owners` [layers of the whole model]; `hooks` [ranks] of the pass, or none. All outlive this. Throws RankFailed,
    /// OutOfBudget.
    PipelinedPrefill(std::span<const LayerRank> ranks, const std::vector<LayerOwner>& owners, PinnedArena& arena,
                     std::int64_t begin, const TargetPass& pass, std::span<PassHooks* const> hooks);
    /// Ends what is enqueued.
    ~PipelinedPrefill();
    PipelinedPrefill(const PipelinedPrefill&) = delete;
    PipelinedPrefill& operator=(const PipelinedPrefill&) = delete;

    /// All layers; false where `control` has given it up. Progress is told by the caller's thread. Throws the first
    /// RankFailed of any thread; all have ended then.
    [[nodiscard]] bool run(const PassControl& control);
    /// Of each rank. Behind run() they are at the pass; the last layer's owner has its rows.
    [[nodiscard]] std::vector<std::optional<Forward::PromptSteps>>& steps() { return steps_; }

private:
    using Lane = std::vector<std::int64_t>;  // layers that a thread sees to

    // Of a prefill chunk between two layers.
    struct Rows {
        std::int64_t n_layers = 0;  // through which it is
        std::uint64_t use = 0;      // of sent_ of the last one's owner, where that is a card; 0: they are there
    };

    [[nodiscard]] std::vector<Lane> lanes() const;
    void run_lane(const Lane& lane, const PassControl& control, bool is_caller);
    [[nodiscard]] std::optional<std::uint64_t> await_rows(std::int64_t layer, std::int64_t prefill_chunk,
                                                          const PassControl& control);
    void run_step(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    void take_rows(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    [[nodiscard]] std::uint64_t give_rows(std::int64_t layer, std::int64_t prefill_chunk);
    void pass_on(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use);
    [[nodiscard]] double part_done() const;
    void stop(std::exception_ptr failure);
    [[nodiscard]] ExecRef exec(std::size_t rank) const { return ranks_[rank].forward->exec(); }
    [[nodiscard]] std::byte* home(std::int64_t prefill_chunk) const {
        return homes_.data() + prefill_chunk * home_bytes_;
    }

    std::span<const LayerRank> ranks_;
    const std::vector<LayerOwner>* owners_;
    std::int64_t n_prefill_chunks_ = 0;
    PinnedBuffer homes_;  // [n_prefill_chunks]: hidden rows of each
    std::size_t home_bytes_ = 0;
    std::vector<std::unique_ptr<Event>> sent_;                // [ranks]: rows are at home
    std::vector<std::optional<Forward::PromptSteps>> steps_;  // [ranks]

    mutable std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::vector<Rows> rows_;   // [n_prefill_chunks]
    std::int64_t n_done_ = 0;  // steps: a prefill chunk through a layer
    bool stopped_ = false;
    std::exception_ptr failure_;  // the first
};

}  // namespace slipstream
