// Copies host memory to the device for its ops, in stream order, without blocking the host.
//
// Arrays: two rings of equal size, one in pinned host memory and one on the device, in which an entry has the same
// offset. A new array is written into the host's ring and copied. An array whose bytes an entry already holds is not
// copied again: positions and paths are the same in every layer of a pass, tables of KV chunks in every pass. Space is
// reused in a circle. Entries in the way are dropped, but never one of the running op. The device's side is overwritten
// in stream order, after all that reads it. Before the host's side is overwritten, the host waits for the copy out of
// that place, which is usually done, since the ring holds the arrays of many ops.
//
// Graphs: a block of the same memory, before the rings, from which launches of graphs read their arrays, one launch
// after another (graph_arrays.h).
//
// Rows: a ring in pinned host memory, into which values are written, and from which they are copied to their place.
//
// Inbox: pinned host memory for copies the other way, for which an op waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "kernels/graph.h"

namespace slipstream {
class CudaDevice;
}

namespace slipstream::cuda {

class CudaEvent;
class CudaGraph;
class CudaStream;

/// Bytes of the block from which graphs read their arrays. The arrays of a pass of 64 nodes take 60 KB, the tables of
/// 80 layers of 128K positions 320 KB.
inline constexpr std::size_t kGraphBlockBytes = std::size_t{512} << 10;

/// Staging memory of one device; the device owns it. Only the stream that has the turn may use it
/// (CudaDevice::begin_turn).
class Staging {
public:
    /// Allocates nothing yet. `device` must outlive this object.
    explicit Staging(CudaDevice& device);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    /// Begins an op: from now on entries of previous ops may be dropped.
    void begin_op() { ++op_; }
    /// Returns a copy in device memory, 64-byte aligned, of the `bytes` bytes (> 0) at `data`, for work that this op
    /// enqueues on `stream`. `data` may change afterwards. All arrays of an op together must fit in the rings
    /// (CHECKed); reserve() makes room. Throws OutOfBudget.
    [[nodiscard]] const std::byte* stage(CudaStream& stream, const std::byte* data, std::size_t bytes);

    /// Copies n_rows rows of `bytes_a_row` bytes to device memory at `dst`. Calls fill(out, first, n) for several
    /// ranges of rows; it must write the rows [first, first + n) to `out`, contiguously. May wait for earlier copies of
    /// rows.
    void send_rows(CudaStream& stream, std::byte* dst, std::size_t bytes_a_row, std::int64_t n_rows,
                   const std::function<void(std::byte* out, std::int64_t first, std::int64_t n)>& fill);

    /// Returns pinned host memory of at least `bytes` bytes, to which an op may copy what the host reads in that op. A
    /// later call returns the same memory. Allocates if no earlier call asked for as much.
    [[nodiscard]] std::byte* inbox(std::size_t bytes);

    /// Returns the address of the block of graphs on the device.
    [[nodiscard]] const std::byte* graph_block() const { return on_device_.data(); }
    /// Writes what the next launch of `graph` reads, after the arrays of the previous launch were copied, and enqueues
    /// the copy. Returns false and enqueues nothing if it does not fit.
    [[nodiscard]] bool send_graph_arrays(CudaStream& stream, CudaGraph& graph, const GraphNumbers& numbers);

    /// Returns the bytes that reserve(op_bytes) takes from the device's memory budget if nothing is allocated yet.
    [[nodiscard]] static std::size_t device_bytes(std::size_t op_bytes);
    /// Makes room for ops that stage up to `op_bytes`; does nothing if there is enough. `stream` is the last one that
    /// used the staging memory, and is synchronised; null: none has since its last synchronize(). Throws OutOfBudget.
    void reserve(CudaStream* stream, std::size_t op_bytes);

    /// n_copied() returns how many arrays were copied so far, n_found() how many needed no copy.
    [[nodiscard]] std::uint64_t n_copied() const { return n_copied_; }
    [[nodiscard]] std::uint64_t n_found() const { return n_found_; }

private:
    struct Entry {
        std::size_t offset = 0;     // bytes from the start of host_ and of on_device_
        std::size_t bytes = 0;      // bytes of the array, without padding
        std::uint64_t digest = 0;   // digest of the array
        std::uint64_t last_op = 0;  // last op that asked for the array
        std::uint64_t copied = 0;   // use of copied_ that was recorded after the array's copy
    };
    /// Slots of rows_: one is filled by the host while others are copied to the device.
    static constexpr std::size_t kRowSlots = 4;

    [[nodiscard]] bool make_room(std::size_t bytes);

    CudaDevice& device_;
    Buffer host_;                          // the block of graphs, then the ring
    Buffer on_device_;                     // device memory with the layout of host_
    std::deque<Entry> entries_;            // entries in the order of their offsets, from head_ on around the circle
    std::size_t head_ = kGraphBlockBytes;  // offset of the next entry, if it fits there
    std::uint64_t op_ = 0;
    std::unique_ptr<CudaEvent> copied_;
    std::uint64_t graph_use_ = 0;  // use of copied_ after the latest copy of a graph's arrays

    Buffer rows_;  // kRowSlots slots, filled and copied in turn
    std::unique_ptr<CudaEvent> rows_copied_;
    std::uint64_t slot_use_[kRowSlots] = {};  // use of rows_copied_ after each slot's latest copy
    std::size_t next_slot_ = 0;

    Buffer inbox_;

    std::uint64_t n_copied_ = 0;
    std::uint64_t n_found_ = 0;
};

}  // namespace slipstream::cuda
