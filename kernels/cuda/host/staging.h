// Host memory on its way to ops of a CUDA device, in stream order and without waiting for it.
//
// Arrays: two rings of equal size, one page-locked on the host and one on the device, in which an entry has the same
// place. A new array is written into the host's ring and copied over; one whose bytes an entry holds already costs
// nothing: positions and paths are the same in every layer of a pass, tables of chunks in every pass. Rooms are taken
// in a circle and entries forgotten as it comes round to them; never one of the running op. The device's side is
// written in stream order, behind all that reads it; the host's side waits for the copy out of the same place, which a
// ring of many ops has behind it.
//
// Graphs: a block of the same memory, in front of the rings, that launches of graphs read their arrays from, one launch
// after another (graph_arrays.h).
//
// Rows: a page-locked ring that values are written into, and copied from to where they belong.
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

/// Of the block that graphs have: the arrays of a pass of 64 nodes take 60 KB, tables of 80 layers of 128K positions
/// 320 KB.
inline constexpr std::size_t kGraphBlockBytes = std::size_t{512} << 10;

class Staging {
public:
    /// Takes no memory yet.
    explicit Staging(CudaDevice& device);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    /// Entries of the ops before may be forgotten from now on.
    void begin_op() { ++op_; }
    /// `bytes` (> 0) at `data` on the device, 64-byte aligned, for work enqueued on `stream` in this op.
    [[nodiscard]] const std::byte* stage(CudaStream& stream, const std::byte* data, std::size_t bytes);

    /// Calls fill(out, first, n) for pieces of `n_rows` rows of `bytes_a_row`, which are to be written to `out`, and
    /// enqueues their copy to `dst`.
    void send_rows(CudaStream& stream, std::byte* dst, std::size_t bytes_a_row, std::int64_t n_rows,
                   const std::function<void(std::byte* out, std::int64_t first, std::int64_t n)>& fill);

    /// The block of graphs on the device.
    [[nodiscard]] const std::byte* graph_block() const { return on_device_.data(); }
    /// Writes what the next launch of `graph` reads, once the launch before has copied its own, and enqueues its copy.
    /// False, and nothing is enqueued, where it does not fit.
    [[nodiscard]] bool send_graph_arrays(CudaStream& stream, CudaGraph& graph, const GraphNumbers& numbers);

    /// What reserve() takes of the device's budget for ops that stage up to `op_bytes`, where nothing is taken yet.
    [[nodiscard]] static std::size_t device_bytes(std::size_t op_bytes);
    /// Makes room for ops that stage up to `op_bytes`; nothing where it is there. `stream` is the last that used what
    /// was there; null: none did since it was synchronised.
    void reserve(CudaStream* stream, std::size_t op_bytes);

    /// Copies made and saved so far.
    [[nodiscard]] std::uint64_t n_copied() const { return n_copied_; }
    [[nodiscard]] std::uint64_t n_found() const { return n_found_; }

private:
    struct Entry {
        std::size_t offset = 0;
        std::size_t bytes = 0;      // of the array
        std::uint64_t digest = 0;   // of the array
        std::uint64_t last_op = 0;  // that asked for it
        std::uint64_t copied = 0;   // use of copied_
    };
    static constexpr std::size_t kRowSlots = 4;

    [[nodiscard]] bool make_room(std::size_t bytes);

    CudaDevice& device_;
    Buffer host_;                          // the block of graphs, then the ring
    Buffer on_device_;                     // the same
    std::deque<Entry> entries_;            // in the order of their places, from head_ on round the circle
    std::size_t head_ = kGraphBlockBytes;  // where the next one lies, if it fits
    std::uint64_t op_ = 0;
    std::unique_ptr<CudaEvent> copied_;
    std::uint64_t graph_use_ = 0;  // of copied_: the copy of a graph's arrays

    Buffer rows_;  // slots that are filled and copied in turn
    std::unique_ptr<CudaEvent> rows_copied_;
    std::uint64_t slot_use_[kRowSlots] = {};  // of rows_copied_
    std::size_t next_slot_ = 0;

    std::uint64_t n_copied_ = 0;
    std::uint64_t n_found_ = 0;
};

}  // namespace slipstream::cuda
