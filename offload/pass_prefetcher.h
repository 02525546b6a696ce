// The items of one pass after the other, in the order in which passes read them, through a transfer ring.
//
// A transfer schedule is a list of items. Whenever the running pass releases one, copies go on ahead as far as the
// ring has room: the rest of this schedule, then the next one, which is asked for (and so frozen) at its first copy;
// never further. So the link does not idle at pass borders. Who makes schedules knows what an item is; this file does
// not.
//
// That there is room for the next schedule's first copy is judged by the first item of the running one, since its own
// is only known once it is asked for: where it is larger it waits, frozen, for the rest of its room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/indexed.h"
#include "kernels/device.h"
#include "offload/transfer_ring.h"

namespace slipstream {

class ScheduleSource {
public:
    virtual ~ScheduleSource() = default;
    /// Replaces `schedule` by the items of the next pass in reading order; none is a schedule, too. Called once a
    /// pass, at the latest when it begins, at the earliest while the one before runs. Each item must fit into the
    /// ring.
    virtual void next_schedule(std::vector<TransferItem>& schedule) = 0;
};

class PassPrefetcher {
public:
    /// Both must outlive the prefetcher. Nobody else pushes into the ring. Memory for schedules of up to `max_items`
    /// items is taken at once.
    PassPrefetcher(TransferRing& ring, ScheduleSource& source, std::int64_t max_items);

    /// The next schedule becomes the running one; copies start. The one before must be read to its end. Throws
    /// OutOfBudget where an item is larger than the ring; then no pass runs, and the next call asks the source anew.
    void begin_pass(Stream& compute);
    /// Item `index` of the running schedule on the device; its copy is enqueued (CHECKed: there must have been room
    /// for it, items held and not released count). May be called again until its release. Throws what failed in a
    /// copy; then rewind() makes the prefetcher usable again.
    [[nodiscard]] const std::byte* acquire(std::int64_t index, Stream& compute);
    /// In ascending order, each once. Then copies go ahead.
    void release(std::int64_t index, Stream& compute);
    /// CHECKs that all items of the running schedule are released.
    void end_pass();
    /// Gives up the running schedule, where there is one, and what was copied ahead of it; the next begin_pass() asks
    /// the source anew. Blocks until copies under way are done. Throws what failed in them, unless acquire() has told
    /// it; the prefetcher is usable then, too.
    void rewind(Stream& compute);

    /// Items of the running schedule; 0 where no pass runs.
    [[nodiscard]] std::int64_t n_items() const;
    /// Whether the schedule behind the running one is already asked for.
    [[nodiscard]] bool next_is_frozen() const { return next_is_frozen_; }

private:
    void ask_for_next();
    void copy_ahead();

    TransferRing* ring_;
    ScheduleSource* source_;
    std::int64_t max_items_;
    Indexed<TransferItem> current_;  // the running schedule
    Indexed<TransferItem> next_;     // the one behind it, where it is frozen
    bool running_ = false;
    bool next_is_frozen_ = false;
    bool next_fits_ = false;          // each of its items into the ring; otherwise none of them is copied
    bool failure_told_ = false;       // acquire() has thrown since the last rewind
    std::int64_t first_number_ = 0;   // in the ring, of item 0 of the running schedule
    std::int64_t n_copied_ = 0;       // items of the running schedule whose copy is enqueued
    std::int64_t n_released_ = 0;     // and which are released
    std::int64_t n_next_copied_ = 0;  // of the next one
};

}  // namespace slipstream
