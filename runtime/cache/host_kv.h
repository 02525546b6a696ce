// The host's store of a KV cache: page-locked memory for the chunks that stream (HostExtents), and the way there: a
// chunk that is full is flushed behind the compute stream.
//
// Passes read chunks from here (PassStream), by schedules that may be made while the pass before runs. What such a
// schedule counts on is a snapshot: chunks below the number that snapshot() gave are read from the host, those from it
// on lie in the tail, whose slots must hold them until then. Whoever must write one of those slots, or changes what was
// flushed, invalidates the schedule first (README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "runtime/cache/device_kv.h"
#include "runtime/cache/host_extents.h"

namespace slipstream {

/// Who makes schedules ahead of their pass.
class PreparedSchedules {
public:
    virtual ~PreparedSchedules() = default;
    /// Gives them up: the next schedule is made anew. No pass is running.
    virtual void invalidate(Stream& compute) = 0;
};

class HostKv {
public:
    /// As HostExtents.
    HostKv(Device& device, PinnedArena& arena, const DeviceKv& store);
    /// Waits for flushes under way.
    ~HostKv();
    HostKv(const HostKv&) = delete;
    HostKv& operator=(const HostKv&) = delete;

    /// Where chunks lie.
    [[nodiscard]] HostExtents& extents() { return extents_; }
    [[nodiscard]] std::byte* chunk(std::int64_t layer, std::int64_t chunk) { return extents_.chunk(layer, chunk); }
    /// Full chunks that are here, or will be once flushed() has reached flush_use() of the last.
    [[nodiscard]] std::int64_t n_chunks() const { return n_chunks_; }
    [[nodiscard]] const Event& flushed() const { return *flushed_; }
    [[nodiscard]] std::uint64_t flush_use(std::int64_t chunk) const { return flush_use_[chunk]; }

    /// Copies chunks here behind the compute stream's work so far: `copy(stream)` enqueues them. The use of flushed()
    /// that tells when they are done.
    template <typename Copy>
    std::uint64_t flush(Stream& compute, const Copy& copy) {
        copy_out_->wait(*written_, compute.record(*written_));
        copy(*copy_out_);
        return copy_out_->record(*flushed_);
    }
    /// The same of a chunk of the tail, the one behind those that are here, in every layer where it streams.
    void flush_tail(Stream& compute, std::int64_t chunk);
    /// Chunks up to `n_chunks` are here with that use of flushed().
    void add(std::int64_t n_chunks, std::uint64_t flush_use);
    /// The same of chunks that the host has written to chunk().
    void add_written(std::int64_t n_chunks);
    /// Waits until nothing is on its way here any more, and `compute` is done: the host may write chunks.
    void wait_for_flushes(Stream& compute);
    /// Chunks from this on are here no more.
    void cut(std::int64_t n_chunks);
    /// After a failure: ends what is under way, gives up the schedule made ahead, and tells how many of the chunks have
    /// come here whole, from the first. What failed has been told; chunks can be flushed again.
    [[nodiscard]] std::int64_t recover(Stream& compute) noexcept;
    /// `compute` waits until the place in the tail that `chunk` will take may be written; a schedule that counts on
    /// what lies there is invalidated.
    void clear_place(Stream& compute, std::int64_t chunk);

    /// n_chunks() of a schedule that `schedules` makes now. One at a time: CHECKed.
    [[nodiscard]] std::int64_t snapshot(PreparedSchedules& schedules);
    /// `schedules` has none ahead any more: the last one runs, or was given up.
    void drop_schedule(PreparedSchedules& schedules) {
        if (schedules_ == &schedules) schedules_ = nullptr;
    }
    void invalidate(Stream& compute) {
        if (schedules_ != nullptr) schedules_->invalidate(compute);
    }

private:
    const DeviceKv* store_;
    HostExtents extents_;
    std::unique_ptr<Stream> copy_out_;
    std::unique_ptr<Event> written_;  // rows that a flush copies
    std::unique_ptr<Event> flushed_;
    std::vector<std::uint64_t> flush_use_;  // [chunks of a layer]; 0: not flushed yet
    std::int64_t n_chunks_ = 0;
    PreparedSchedules* schedules_ = nullptr;  // who made a schedule ahead, null: nobody
    std::int64_t snapshot_chunks_ = 0;        // n_chunks() of it
};

}  // namespace slipstream
