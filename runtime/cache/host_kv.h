// HostKv: the host side of a KV cache. It holds page-locked memory for the chunks that stream (HostExtents), and
// flushes to it: a KV chunk is flushed when it is full, after all work enqueued on the compute stream so far.
//
// Passes read chunks from here (PassStream) by transfer schedules, which may be prepared while the previous pass runs.
// A schedule relies on a snapshot: chunks below snapshot() are read from the host, later ones from the tail, whose
// slots must keep them until then. Code that must overwrite such a slot, or changes flushed chunks, invalidates the
// schedule first (README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "runtime/cache/device_kv.h"
#include "runtime/cache/host_extents.h"

namespace slipstream {

/// A stream that prepares transfer schedules before their passes.
class PreparedSchedules {
public:
    virtual ~PreparedSchedules() = default;
    /// Drops the prepared schedule, so that it is made anew. Must not be called while a pass runs.
    virtual void invalidate(Stream& compute) = 0;
};

class HostKv {
public:
    /// `device`, `arena` and `store` must outlive this object. Throws OutOfBudget if `arena` has no room for the KV
    /// chunks that stream.
    HostKv(Device& device, PinnedArena& arena, const DeviceKv& store);
    /// Waits for flushes in progress; an error of a flush is dropped.
    ~HostKv();
    HostKv(const HostKv&) = delete;
    HostKv& operator=(const HostKv&) = delete;

    /// Returns the memory of the KV chunks that stream. Its chunk() waits until the chunk's memory is there.
    [[nodiscard]] HostExtents& extents() { return extents_; }
    [[nodiscard]] std::byte* chunk(std::int64_t layer, std::int64_t chunk) { return extents_.chunk(layer, chunk); }
    /// Returns the number of full KV chunks that are in host memory, or will be when flushed() has completed the use
    /// flush_use() of the last one.
    [[nodiscard]] std::int64_t n_chunks() const { return n_chunks_; }
    [[nodiscard]] const Event& flushed() const { return *flushed_; }
    /// Returns the use of flushed() after which the KV chunk is in host memory; 0: there is nothing to wait for, since
    /// it streams in no layer or the host has written it.
    [[nodiscard]] std::uint64_t flush_use(std::int64_t chunk) const { return flush_use_[chunk]; }
    /// Makes `stream` wait until the KV chunk `chunk`, one of n_chunks(), is in host memory. Throws the error of a
    /// flush that failed.
    void await_flush(Stream& stream, std::int64_t chunk) const {
        if (flush_use(chunk) > 0) stream.wait(*flushed_, flush_use(chunk));
    }

    /// Copies KV chunks to the host after the compute stream's work so far. `copy(stream)` must enqueue the copies.
    /// Returns the use of flushed() that completes when they are done.
    template <typename Copy>
    std::uint64_t flush(Stream& compute, const Copy& copy) {
        copy_out_->wait(*written_, compute.record(*written_));
        copy(*copy_out_);
        return copy_out_->record(*flushed_);
    }
    /// Flushes the KV chunk `chunk` from the tail, in every layer in which it streams, and counts it as added. It must
    /// be the first full KV chunk that is not in host memory (CHECKed).
    void flush_tail(Stream& compute, std::int64_t chunk);
    /// Counts all KV chunks below `n_chunks` as flushed by the use `flush_use` of flushed().
    void add(std::int64_t n_chunks, std::uint64_t flush_use);
    /// Counts all KV chunks below `n_chunks` as flushed, after the host has written them to chunk().
    void add_written(std::int64_t n_chunks);
    /// Waits until no flush is in progress and `compute` is idle: then the host may write KV chunks.
    void wait_for_flushes(Stream& compute);
    /// Counts the KV chunks from `n_chunks` on as not flushed.
    void cut(std::int64_t n_chunks);
    /// Call after a failure: finishes the copies in progress, drops the prepared schedule, and returns how many KV
    /// chunks, from the first, are intact in host memory. Errors of these copies are not thrown; the other KV chunks
    /// can be flushed again.
    [[nodiscard]] std::int64_t recover(Stream& compute) noexcept;
    /// Makes `compute` wait until the tail slot that `chunk` will take may be overwritten. Invalidates a schedule that
    /// relies on the KV chunk in that slot.
    void clear_place(Stream& compute, std::int64_t chunk);

    /// Returns n_chunks(), and notes that `schedules` makes a schedule that relies on it. Only one PreparedSchedules at
    /// a time (CHECKed).
    [[nodiscard]] std::int64_t snapshot(PreparedSchedules& schedules);
    /// Call when `schedules` has no prepared schedule any more: the last one runs, or was dropped.
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
    std::unique_ptr<Event> written_;  // recorded when the rows that a flush copies are written
    std::unique_ptr<Event> flushed_;
    std::vector<std::uint64_t> flush_use_;  // [KV chunks of a layer]
    std::int64_t n_chunks_ = 0;
    // Owner of a prepared schedule that relies on snapshot_chunks_; null: no schedule does.
    PreparedSchedules* schedules_ = nullptr;
    std::int64_t snapshot_chunks_ = 0;  // n_chunks() when the schedule of schedules_ was made
};

}  // namespace slipstream
