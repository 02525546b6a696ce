// DeviceKv: the device memory of a KV cache. It holds the first chunks of each layer, which are resident; for layers
// whose other chunks stream, the tail, a few slots in which chunks fill before they are flushed to the host; and
// scratch rows of nodes that are not committed. A layer that keeps a ring of chunks (kv_ring.h) is resident as a whole
// or not at all.
//
// It knows where chunks are between passes. Where chunks of the host are while a pass reads them is managed by the pass
// (runtime/pass/pass_reads.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/cache/kv_nodes.h"

namespace slipstream {

/// Most KV chunks of a layer in one allocation of device memory, and in one copy.
inline constexpr std::int64_t kChunksPerExtent = 16;
/// Tail slots of a layer that streams: two hold full KV chunks that are being flushed, one holds the KV chunk that
/// fills.
inline constexpr std::int64_t kTailChunks = 3;

/// Returns the bytes of the largest KV chunk of any of the layers; 0 if there are none.
[[nodiscard]] std::size_t largest_chunk_bytes(std::span<const KvLayout> layouts);

class DeviceKv {
public:
    /// Allocates memory for `n_chunks` KV chunks of each layer and for `max_nodes` scratch rows. Layer i has layouts[i]
    /// ([n_layers]); its first resident_chunks[i] KV chunks ([n_layers]) are resident, later ones have the tail only. A
    /// layer with a window (windows[i]; empty: none has one) keeps a ring of kept_chunks() KV chunks: all of it is
    /// resident if resident_chunks[i] is n_chunks, else resident_chunks[i] must be 0 (CHECKed). Throws OutOfBudget.
    DeviceKv(Device& device, std::span<const KvLayout> layouts, std::int64_t n_chunks, std::int64_t max_nodes,
             std::span<const std::int64_t> resident_chunks, std::span<const std::int64_t> windows = {});
    /// Returns the bytes that the constructor takes from the device's memory budget.
    [[nodiscard]] static std::size_t bytes(std::span<const KvLayout> layouts, std::int64_t n_chunks,
                                           std::int64_t max_nodes, std::span<const std::int64_t> resident_chunks,
                                           std::span<const std::int64_t> windows = {});

    /// Returns the layout of each layer, [n_layers()].
    [[nodiscard]] std::span<const KvLayout> layouts() const { return layouts_; }
    [[nodiscard]] const KvLayout& layout(std::int64_t layer) const { return layouts_[layer]; }
    [[nodiscard]] std::int64_t n_layers() const { return std::ssize(layouts_); }
    [[nodiscard]] std::int64_t n_chunks() const { return n_chunks_; }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t layer) const { return resident_[layer]; }
    /// Returns how many KV chunks the layer keeps: n_chunks(), or fewer if it keeps a ring.
    [[nodiscard]] std::int64_t kept_chunks(std::int64_t layer) const { return kept_[layer]; }
    /// Returns whether the layer keeps fewer KV chunks than the context has.
    [[nodiscard]] bool is_ring(std::int64_t layer) const { return kept_[layer] < n_chunks_; }
    /// Returns the index of a KV chunk among those that its layer keeps besides the resident ones. In a ring, it is the
    /// index among all that the layer keeps, and later KV chunks take the same places again.
    [[nodiscard]] std::int64_t place(std::int64_t layer, std::int64_t chunk) const {
        return is_ring(layer) ? chunk % kept_[layer] : chunk - resident_[layer];
    }

    /// Returns [n_chunks()]: the addresses of the layer's KV chunks that are on the device, resident or in the tail;
    /// null for the others. In a resident ring, KV chunks that take each other's place have the same address.
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const { return chunks_.data() + layer * n_chunks_; }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const { return scratch_.data() + scratch_begin_[layer]; }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const { return scratch_k(layer) + plane_bytes(layer); }

    /// Copies the scratch rows `rows` of `from` to the slots from `first_slot` on, in every layer, in stream order.
    /// `from` may be this store; another store must have the same layouts (CHECKed). The KV chunks of these slots must
    /// be on the device.
    void commit(ExecRef exec, const DeviceKv& from, std::span<const NodeId> rows, std::int64_t first_slot) const;

    // For layers that stream.

    /// Return the bytes of the largest, and of the smallest, KV chunk of the layers that stream; 0 if no layer streams.
    [[nodiscard]] std::size_t largest_streamed_chunk() const;
    [[nodiscard]] std::size_t smallest_streamed_chunk() const;
    /// Returns the address of the tail slot of `chunk` in a layer that streams.
    [[nodiscard]] std::byte* tail_chunk(std::int64_t layer, std::int64_t chunk) const;
    /// Returns the KV chunk that is in the tail slot of `chunk`, which may be `chunk` itself; -1: the slot is free.
    [[nodiscard]] std::int64_t held_at(std::int64_t chunk) const { return held_[chunk % kTailChunks]; }
    /// Assigns the tail slot of `chunk` to `chunk`, in all layers in which it streams. The KV chunk that had the slot
    /// loses it.
    void hold(std::int64_t chunk);
    /// Frees the tail slots of the KV chunk `chunk` and all later ones.
    void release_from(std::int64_t chunk);

private:
    /// Returns the bytes of the scratch rows of a layer for K, or for V.
    [[nodiscard]] std::size_t plane_bytes(std::int64_t layer) const {
        return static_cast<std::size_t>(max_nodes_) * layouts_[layer].scratch_row_bytes();
    }
    void take_resident(Device& device);
    void put(std::int64_t held, bool is_there);

    std::vector<KvLayout> layouts_;  // [n_layers]
    std::int64_t n_chunks_;          // KV chunks of a layer
    std::int64_t max_nodes_;
    std::vector<std::int64_t> resident_;      // [n_layers]: number of resident KV chunks, from the first
    std::vector<std::int64_t> kept_;          // [n_layers]: see kept_chunks()
    std::vector<Buffer> extents_;             // memory of resident KV chunks
    std::vector<std::byte*> chunks_;          // [n_layers][n_chunks], see chunks()
    Buffer scratch_;                          // [n_layers][K|V][max_nodes][n_kv_heads][head_dim]
    std::vector<std::size_t> scratch_begin_;  // [n_layers]: offset of the layer's scratch rows, in bytes
    Buffer tail_;                             // device memory of tail slots: [streaming layers][kTailChunks] KV chunks
    std::vector<std::size_t> tail_begin_;     // [n_layers]: offset of the layer's tail, in bytes, if the layer streams
    std::vector<std::int64_t> held_;          // [kTailChunks]: the KV chunk in each tail slot; -1: none
};

}  // namespace slipstream
