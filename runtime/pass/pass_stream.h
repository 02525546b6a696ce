// PassStream: copies the weights and KV that passes read from host memory through one transfer ring, in the order of
// the pass's transfer schedule (pass_schedule.h). Experts are copied on demand: only those that the tokens of a pass
// chose, as soon as a layer has chosen them, on a stream of their own: into a slot, where they stay for later passes
// (ItemCache), if the layer has a free one or one of an expert that the text chooses less often (choose_slots()); else
// through a part of the ring of their own. Or they are not copied: the CPU computes them where they are in host memory
// (experts/miss_rules.h).
//
// Forward acquires each item at its first use and releases it when its last use is enqueued. Items must be acquired in
// the order of the schedule (CHECKed). Passes over different models and KV caches may take turns, but must not overlap.
// As soon as the ring has room after the running schedule, the next schedule is made, for the same model and KV, from a
// snapshot of the KV. So the link stays busy across passes. If the next pass is over another model or KV, the prepared
// schedule is dropped. Items on demand are never copied ahead of their layer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/item_cache.h"
#include "offload/pass_prefetcher.h"
#include "offload/pinned_arena.h"
#include "offload/transfer_ring.h"
#include "runtime/experts/expert_use.h"
#include "runtime/experts/miss_rules.h"
#include "runtime/experts/slot_choice.h"
#include "runtime/pass/pass_profile.h"
#include "runtime/pass/pass_reads.h"
#include "runtime/pass/pass_schedule.h"

namespace slipstream {

/// Bytes that passes have read through the ring, and the time for which they waited for copies.
struct StreamFigures {
    std::uint64_t weights_bytes = 0;  // read by passes; items that are copied ahead count once they are read
    std::uint64_t kv_bytes = 0;
    double wait_seconds = 0.0;  // waits of the thread that enqueues the pass; a GPU's stream waits without it
};

class PassStream final : public WeightStream, public KvStream, public ScheduleSource, public PreparedSchedules {
public:
    /// Serves passes over any of `reads` (at least one; all of one device). Takes `ring_bytes` from the device's
    /// budget, and what the slots of experts take. `expert_slots`: [layers] slots of each layer; empty: there are none.
    /// With slots, all `reads` must be of one model, of which all experts stream (CHECKed). `misses`: whether items on
    /// demand are copied; if not all are, the device's ops must read host memory, and Cpu requires that there are no
    /// slots (CHECKed). Prompts that go layer by layer keep their hidden states in `arena`. `reads` and `arena` must
    /// outlive this object. Throws OutOfBudget, also if the ring cannot hold the largest scheduled item twice beside
    /// the largest item on demand that may be copied twice.
    PassStream(const std::vector<PassReads>& reads, PinnedArena& arena, std::size_t ring_bytes,
               std::span<const std::int32_t> expert_slots = {}, MissRules misses = {});
    ~PassStream() override;
    PassStream(const PassStream&) = delete;
    PassStream& operator=(const PassStream&) = delete;

    [[nodiscard]] PinnedArena& arena() const { return *arena_; }
    [[nodiscard]] std::size_t ring_bytes() const { return region_.size_bytes(); }
    /// Returns the stream on which scheduled items are copied. Other copies to the device (hidden states of a prompt)
    /// use it too, and are then in order with those of the ring.
    [[nodiscard]] Stream& copy_in() { return *copy_in_; }

    void begin_pass(const PassReads& reads, Stream& compute);
    [[nodiscard]] bool holds_item(std::int32_t item) const override;
    std::int64_t need_items(std::span<ItemNeed> items, const PassChoices& choices, Stream& compute) override;
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    [[nodiscard]] ChunkRange streamed(std::int64_t layer) const override;
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override;
    [[nodiscard]] std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;
    /// Ends the pass. Items that the pass did not read (the LM head, if no logits were requested) are waited for and
    /// released.
    void end_pass(Stream& compute);
    /// Ends a pass that does not come to its end: drops its schedule, the prepared one, and what was needed. Throws the
    /// error of a failed copy, also if it has ended the pass: the caller has that error already.
    void abandon(Stream& compute);

    /// Stops all copies and returns the memory of the ring, for a prompt that goes layer by layer. The caller must not
    /// use it after the next begin_pass().
    [[nodiscard]] std::span<std::byte> lend_ring(Stream& compute);
    /// Returns whether items on demand may be copied; if not, all that are not resident are computed in host memory.
    [[nodiscard]] bool copies_on_demand() const { return misses_.misses != ExpertMisses::Cpu; }
    /// Returns the device address of an item that is held. Its copy was waited for by an earlier pass.
    [[nodiscard]] const std::byte* held_item(std::int32_t item, Stream& compute);
    /// Counts what the tokens at `path` chose, which are committed now: slots go to experts of high counts.
    void count_choices(const ExpertChoices& choices, std::span<const NodeId> path);
    /// Returns [layers]: the use of experts by what was counted, and by what go_on_from() was given; of a layer without
    /// experts, that of none. Empty if there are no slots.
    [[nodiscard]] std::span<const ExpertUse> expert_use() const { return uses_; }
    /// Counts go on from `uses`, [layers]; layers whose use has no experts are left as they are. Sizes must be those of
    /// the model (CHECKed). Requires slots (CHECKed).
    void go_on_from(std::span<const ExpertUse> uses);
    /// Returns the bytes that fill_slots() copies.
    [[nodiscard]] std::size_t filling_bytes() const;
    /// Copies the experts of the highest counts into free slots, between two passes, and waits for the copies, a layer
    /// at a time. on_filled(bytes) is called after each of them. If a copy fails, or on_filled throws, the slots of
    /// that layer are free, and the error is thrown. Does nothing without slots.
    void fill_slots(Stream& compute, const std::function<void(std::size_t bytes)>& on_filled);
    /// Whether all slots of experts have one; so if there are no slots.
    [[nodiscard]] bool slots_are_full() const { return cache_ == nullptr || cache_->is_full(); }
    /// Returns whether copies are traced: then the times for count_weights() and count_kv() must be known.
    [[nodiscard]] bool is_traced() const { return profile_ != nullptr; }
    /// Gives each copy that a pass has read to `profile`, which has a trace and must outlive its use, from now on;
    /// null: to none. Must not be called during a pass.
    void profile_with(PassProfile* profile);
    /// Adds an item of weights, or KV of a layer, that a pass has read, to figures() and the trace. Also called for
    /// copies that do not use this object's schedules (PromptStream). `times` is ignored unless is_traced().
    void count_weights(const Model& model, std::int32_t item, const CopyTimes& times,
                       CopyOrder order = CopyOrder::Scheduled);
    void count_kv(std::int64_t layer, std::size_t bytes, const CopyTimes& times);

    [[nodiscard]] const StreamFigures& figures() const { return figures_; }

    // Makes the next schedule, and sets `copies` to its copies. PassPrefetcher calls next_schedule(), HostKv
    // invalidate().
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
    template <typename Acquire>
    [[nodiscard]] const std::byte* wait_for(const char* what, const Acquire& acquire);
    /// An item on demand that the running layer needs.
    struct NeededItem {
        std::int32_t item = 0;
        std::int64_t number = -1;  // in demand_ring_; -1: in a slot, or not copied yet
        bool gets_slot = false;
    };
    /// Whether `item` is the next of those that are needed.
    [[nodiscard]] bool is_needed_next(std::int32_t item) const {
        return n_used_ < needed_.size() && needed_[n_used_].item == item;
    }
    void make_cache(const std::vector<PassReads>& reads, std::span<const std::int32_t> expert_slots);
    [[nodiscard]] std::vector<std::int32_t> wanted_experts(std::size_t layer) const;
    void count_pass(std::int64_t layer, std::span<const ItemNeed> items, const PassChoices& choices);
    void choose_copied(std::int64_t layer, std::span<ItemNeed> items) const;
    void shuffle_slots(std::int64_t layer);
    [[nodiscard]] std::uint32_t drawn(std::int64_t layer, std::int64_t expert, std::uint32_t what) const;
    std::int64_t give_slots(std::int64_t layer, Stream& compute);
    void copy_needed();
    [[nodiscard]] const std::byte* acquire_needed(Stream& compute);
    [[nodiscard]] CopyTimes needed_times();

    PinnedArena* arena_;
    Buffer region_;
    Buffer slots_region_;  // of cache_
    std::unique_ptr<Stream> copy_in_;
    RingParts parts_;
    std::unique_ptr<TransferRing> ring_;  // of scheduled items
    std::unique_ptr<PassPrefetcher> prefetcher_;
    std::unique_ptr<Stream> demand_copies_;
    std::unique_ptr<TransferRing> demand_ring_;  // of items on demand; null: there are none
    std::unique_ptr<ItemCache> cache_;           // of experts: a group for each layer; null: there are no slots
    const Model* cached_model_ = nullptr;        // whose experts cache_ has
    std::vector<ExpertUse> uses_;                // [layers], by committed tokens; empty without cache_
    MissRules misses_;
    // Of the layer that needs items, in need_items(): counts with the certain tokens of the pass, the number of these,
    // [experts] whether it is in a slot, the experts that the pass needs, and who gets a slot.
    ExpertCounts scores_{0};
    std::int64_t n_certain_ = 0;
    std::vector<std::uint8_t> held_;
    std::vector<std::uint16_t> needed_experts_;
    std::vector<SlotTake> takes_;
    std::vector<NeededItem> needed_;                           // of the layer that the pass computes
    std::chrono::steady_clock::time_point last_demand_end_{};  // end of the last traced copy on demand
    std::size_t n_copied_ = 0;                                 // of needed_: those whose copies are enqueued
    std::size_t n_used_ = 0;                                   // of needed_: those that are released
    std::array<Schedule, 2> schedules_;  // the running and the prepared schedule: number n is at n % 2
    PassReads reads_{};                  // model and KV for which the next schedule will be made
    std::uint64_t n_made_ = 0;           // number of the last schedule that was made; the first is 1
    std::uint64_t n_begun_ = 0;          // number of the schedule that runs, or ran last
    std::size_t at_ = 0;                 // index in the running schedule of the next item to acquire or release
    bool in_pass_ = false;
    std::vector<const std::byte*> segment_;  // [KV chunks of a layer]: addresses of those of the acquired segment
    StreamFigures figures_;
    PassProfile* profile_ = nullptr;  // receives the times of copies, not owned; null: copies are not traced
};

/// Guard of a running pass: the destructor abandons the pass unless complete() was called.
class RunningPass {
public:
    /// `pass`: null if the pass reads nothing from the host; then this object does nothing.
    RunningPass(PassStream* pass, const PassReads& reads, Stream& compute) : pass_(pass), compute_(&compute) {
        if (pass_ != nullptr) pass_->begin_pass(reads, compute);
    }
    ~RunningPass() {
        if (pass_ == nullptr) return;
        try {
            pass_->abandon(*compute_);
        } catch (...) {  // the error of the failed copy has ended the pass and is on its way to the caller
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
