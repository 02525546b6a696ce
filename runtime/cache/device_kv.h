// The device's store of a KV cache: a layer's first chunks, which are resident; for layers whose others stream the
// tail, a few slots in which chunks fill before they go to the host; and the scratch of rows that are not committed.
//
// It says where a chunk rests between passes. Where chunks of the host lie while a pass reads them is the pass's
// business (runtime/pass/pass_reads.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/cache/kv_nodes.h"

namespace slipstream {

/// Chunks of one layer in one piece of the device's memory, and in one copy, at most.
inline constexpr std::int64_t kChunksPerExtent = 16;
/// Slots of a layer that streams: two full chunks on their way out, and the one that fills.
inline constexpr std::int64_t kTailChunks = 3;

class DeviceKv {
public:
    /// Memory for `n_chunks` chunks of each layer, those behind `resident_chunks` [n_layers] in the tail only, and for
    /// `max_nodes` scratch rows, taken once. Throws OutOfBudget.
    DeviceKv(Device& device, const KvShape& shape, std::int64_t n_chunks, std::int64_t max_nodes,
             std::span<const std::int64_t> resident_chunks);
    /// What the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t bytes(const KvShape& shape, std::int64_t n_chunks, std::int64_t max_nodes,
                                           std::span<const std::int64_t> resident_chunks);

    [[nodiscard]] const KvShape& shape() const { return shape_; }
    [[nodiscard]] std::int64_t n_layers() const { return std::ssize(resident_); }
    [[nodiscard]] std::int64_t n_chunks() const { return n_chunks_; }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t layer) const { return resident_[layer]; }

    /// A layer's chunks that rest here, by number, null for the others: resident ones, and those in the tail.
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const { return chunks_.data() + layer * n_chunks_; }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const { return scratch_plane(2 * layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const { return scratch_plane(2 * layer + 1); }

    /// Copies rows of the scratch of `from`, this or another store of the same layers, to the slots from `first_slot`
    /// on in every layer, in stream order; their chunks rest here.
    void commit(ExecRef exec, const DeviceKv& from, std::span<const NodeId> rows, std::int64_t first_slot) const;

    // Of layers that stream.

    /// Where `chunk` rests while it is in the tail.
    [[nodiscard]] std::byte* tail_chunk(std::int64_t layer, std::int64_t chunk) const;
    /// The chunk whose place in the tail `chunk` would take, itself where it is there; -1: none.
    [[nodiscard]] std::int64_t held_at(std::int64_t chunk) const { return held_[chunk % kTailChunks]; }
    /// `chunk` rests in the tail from now on, instead of what was at its place.
    void hold(std::int64_t chunk);
    /// Chunks from this on rest in the tail no more.
    void release_from(std::int64_t chunk);

private:
    [[nodiscard]] std::byte* scratch_plane(std::int64_t index) const {
        return scratch_.data() + index * max_nodes_ * shape_.scratch_row_bytes();
    }
    void take_resident(Device& device);
    void put(std::int64_t held, bool is_there);

    KvShape shape_;
    std::int64_t n_chunks_;  // of a layer
    std::int64_t max_nodes_;
    std::vector<std::int64_t> resident_;  // [n_layers]: chunks of each, from the first
    std::vector<Buffer> extents_;         // of resident chunks
    std::vector<std::byte*> chunks_;      // [n_layers * n_chunks]
    Buffer scratch_;                      // [n_layers][K|V][max_nodes][n_kv_heads][head_dim]
    Buffer tail_;                         // [streaming layers][kTailChunks] chunks
    std::vector<std::int64_t> tail_of_;   // [n_layers]: among the streaming layers
    std::vector<std::int64_t> held_;      // [kTailChunks]: the chunk that rests there, -1: none
};

}  // namespace slipstream
