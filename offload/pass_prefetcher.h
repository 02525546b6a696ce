// Prefetches the items that passes read, in reading order, through one transfer ring.
//
// A transfer schedule is the list of items of one pass. Each time the running pass releases an item, copies are
// enqueued as far as the ring has room: the rest of the running schedule, then the next one. The next schedule is
// requested at its first copy and is fixed (frozen) from then on; prefetching never goes further. So the link stays
// busy across passes. What an item contains is known to the ScheduleSource, not here.
//
// Room for the first copy of the next schedule is judged by the first item of the running one, since the actual item is
// unknown until the schedule is requested. If the actual item is larger, it waits until enough of the ring is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "offload/transfer_ring.h"

namespace slipstream {

/// Makes the transfer schedules of passes.
class ScheduleSource {
public:
    virtual ~ScheduleSource() = default;
    /// Replaces schedule by the items of the next pass in reading order; a schedule can be empty. Called once per pass,
    /// at the latest when the pass begins, at the earliest while the previous one runs; called again for the same pass
    /// if rewind() or a failed begin_pass() dropped its schedule. Each item must fit into the ring.
    virtual void next_schedule(std::vector<TransferItem>& schedule) = 0;
};

class PassPrefetcher {
public:
    /// `ring` and `source` must outlive this object, which must be the only producer of the ring. Allocates memory for
    /// schedules of up to `max_items` items at once; a longer schedule fails a CHECK.
    PassPrefetcher(TransferRing& ring, ScheduleSource& source, std::int64_t max_items);

    /// Makes the next schedule the running one and starts its copies. The previous pass must have ended, by end_pass()
    /// or rewind() (CHECKed). Throws OutOfBudget if an item is larger than the ring, and the error of a refused copy or
    /// of the source. If it throws, no pass runs and nothing is copied ahead: the next call requests a schedule again.
    void begin_pass(Stream& compute);
    /// Returns the device address of item `index` of the running schedule, for work enqueued on `compute` from now on;
    /// valid until its release, and until then it may be acquired again. CHECKs that its copy is enqueued: the ring
    /// must have room for it beside the earlier items that are not released. Throws the error of a failed copy; then
    /// rewind() makes this object usable again.
    [[nodiscard]] const std::byte* acquire(std::int64_t index, Stream& compute);
    /// Ends the use of item `index` after all work enqueued on `compute` so far, then enqueues copies as far as the
    /// ring has room. Items must be released in ascending order, each once (CHECKed).
    void release(std::int64_t index, Stream& compute);
    /// Returns the times of the copy of item `index`, which is acquired and not released. Requires time_copies() of the
    /// ring before the copy.
    [[nodiscard]] CopyTimes copy_times(std::int64_t index) const { return ring_->copy_times(first_number_ + index); }
    /// Ends the pass. All items of the running schedule must be released (CHECKed).
    void end_pass();
    /// Abandons the running schedule, if there is one, and everything that was copied ahead; the next begin_pass()
    /// requests a schedule again. Blocks until copies in progress are done. Throws the error of a failed copy unless
    /// acquire() has thrown already; this object is usable after that, too.
    void rewind(Stream& compute);

    /// Returns the number of items of the running schedule; 0 if no pass runs.
    [[nodiscard]] std::int64_t n_items() const;
    /// Whether the schedule after the running one has been requested, and so is fixed.
    [[nodiscard]] bool next_is_frozen() const { return next_is_frozen_; }

private:
    void ask_for_next();
    void copy_ahead();

    TransferRing* ring_;
    ScheduleSource* source_;
    std::int64_t max_items_;
    std::vector<TransferItem> current_;  // the running schedule
    std::vector<TransferItem> next_;     // the schedule after the running one; valid if next_is_frozen_
    bool running_ = false;
    bool next_is_frozen_ = false;
    bool next_fits_ = false;          // whether the ring could hold each item of next_; if not, none of them is copied
    bool failure_told_ = false;       // acquire() has thrown since the last rewind()
    std::int64_t first_number_ = 0;   // number in the ring of item 0 of the running schedule
    std::int64_t n_copied_ = 0;       // items of the running schedule whose copy is enqueued
    std::int64_t n_released_ = 0;     // items of the running schedule that are released
    std::int64_t n_next_copied_ = 0;  // items of the next schedule whose copy is enqueued
};

}  // namespace slipstream
