// What passes read from host memory, through one transfer ring, in the order of their schedules (pass_schedule.h).
//
// Forward asks for each item when it comes to it and hands it back when its last use is enqueued; asking for anything
// else is an error. Passes over several models and KVs may take turns, never one inside another. The schedule of the
// next pass is made, a snapshot, as soon as the ring has room behind the running one, for the same two: so the link
// goes on across passes. A pass over others gives it up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/pass_prefetcher.h"
#include "offload/pinned_arena.h"
#include "offload/transfer_ring.h"
#include "runtime/pass/pass_profile.h"
#include "runtime/pass/pass_reads.h"
#include "runtime/pass/pass_schedule.h"

namespace slipstream {

/// Bytes that passes have brought over, and how long they stood still for them.
struct StreamFigures {
    std::uint64_t weights_bytes = 0;  // read by passes; copied ahead and not yet read not counted
    std::uint64_t kv_bytes = 0;
    double wait_seconds = 0.0;  // of the compute stream, where the device tells
};

class PassStream final : public WeightStream, public KvStream, public ScheduleSource, public PreparedSchedules {
public:
    /// For passes over any of `reads` (at least one, of one device). Takes `ring_bytes` of the device's budget; hidden
    /// states of prompts will lie in `arena`. All outlive the stream. Throws OutOfBudget, also where the largest item
    /// does not fit twice.
    PassStream(const std::vector<PassReads>& reads, PinnedArena& arena, std::size_t ring_bytes);
    ~PassStream() override;
    PassStream(const PassStream&) = delete;
    PassStream& operator=(const PassStream&) = delete;

    [[nodiscard]] PinnedArena& arena() const { return *arena_; }
    [[nodiscard]] std::size_t ring_bytes() const { return region_.size_bytes(); }
    /// For items that travel besides (hidden states of a prompt), in order with the ring's.
    [[nodiscard]] Stream& copy_in() { return *copy_in_; }

    void begin_pass(const PassReads& reads, Stream& compute);
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    [[nodiscard]] ChunkRange streamed(std::int64_t layer) const override;
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override;
    [[nodiscard]] std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;
    /// What is left of the schedule is passed over (logits that nobody wants).
    void end_pass(Stream& compute);
    /// The running pass is given up.
    void abandon(Stream& compute);

    /// Stops all copies and lends the whole ring, for a prompt that goes layer by layer. The next begin_pass() takes it
    /// back.
    [[nodiscard]] std::span<std::byte> lend_ring(Stream& compute);
    /// Whether copies are traced: then the times of count_weights() and count_kv() must be known.
    [[nodiscard]] bool is_traced() const { return profile_ != nullptr; }
    /// Gives each copy that a pass has read to `profile`, which has a trace and must outlive its use, from now on;
    /// null: to none. Must not be called during a pass.
    void profile_with(PassProfile* profile);
    /// Count what was brought over and read, here or by other means, and trace it. Without is_traced(), `times` is not
    /// looked at.
    void count_weights(const Model& model, std::int32_t item, const CopyTimes& times);
    void count_kv(std::int64_t layer, std::size_t bytes, const CopyTimes& times);

    [[nodiscard]] const StreamFigures& figures() const { return figures_; }

    // Called by PassPrefetcher and by HostKv.
    void next_schedule(std::vector<TransferItem>& copies) override;
    void invalidate(Stream& compute) override;

private:
    struct Schedule {
        PassReads reads{};
        std::vector<ScheduleItem> items;
        std::int64_t host_chunks = 0;
    };

    [[nodiscard]] Schedule& running() { return schedules_[n_begun_ % 2]; }
    [[nodiscard]] const Schedule& running() const { return schedules_[n_begun_ % 2]; }
    void drop_schedule();
    [[nodiscard]] const std::byte* acquire_next(Stream& compute);
    void release_next(Stream& compute);

    PinnedArena* arena_;
    Buffer region_;
    std::unique_ptr<Stream> copy_in_;
    std::unique_ptr<TransferRing> ring_;
    std::unique_ptr<PassPrefetcher> prefetcher_;
    std::array<Schedule, 2> schedules_;  // the running one and the one made ahead, by number
    PassReads reads_{};                  // of the next schedule
    std::uint64_t n_made_ = 0;           // schedules made; the last has this number
    std::uint64_t n_begun_ = 0;          // number of the schedule that runs, or ran last
    std::size_t at_ = 0;                 // item of the running schedule
    bool in_pass_ = false;
    std::vector<const std::byte*> segment_;  // [chunks of a layer]: where those of the segment at hand lie
    StreamFigures figures_;
    PassProfile* profile_ = nullptr;  // null: copies are not traced
};

/// A pass that runs: where it does not come to its end it gives its schedule up.
class RunningPass {
public:
    /// `pass` null: one that reads nothing from the host.
    RunningPass(PassStream* pass, const PassReads& reads, Stream& compute) : pass_(pass), compute_(&compute) {
        if (pass_ != nullptr) pass_->begin_pass(reads, compute);
    }
    ~RunningPass() {
        if (pass_ == nullptr) return;
        try {
            pass_->abandon(*compute_);
        } catch (...) {  // the copy that failed is what ended the pass
        }
    }
    RunningPass(const RunningPass&) = delete;
    RunningPass& operator=(const RunningPass&) = delete;
    void complete() {
        if (pass_ != nullptr) pass_->end_pass(*compute_);
        pass_ = nullptr;
    }

private:
    PassStream* pass_;
    Stream* compute_;
};

}  // namespace slipstream
