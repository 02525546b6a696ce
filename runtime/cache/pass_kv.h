// PassKv: the KV that a forward pass reads and to which it adds rows: the cache of a sequence, or a KV view of it.
//
// Slots number the rows that are there: committed rows in KV chunks of 256 slots, rows of nodes in scratch. Attention
// uses slots only. If a KV omits a part of its text, the position of a node in the text is its slot plus text_offset();
// RoPE uses that position. Keys of committed rows are stored rotated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/view_pages.h"
#include "runtime/cache/host_kv.h"
#include "runtime/cache/kv_nodes.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

/// The view pages of a layer: an older part of the text, in 4 bits, which all nodes see (kernels/view_pages.h).
struct LayerPages {
    const std::byte* pages = nullptr;
    const PageRange* ranges = nullptr;  // [n_kv_heads], device memory. Graphs read it at each launch
    std::int64_t most_slots = 0;        // of a head; 0: the layer has no pages
    std::size_t n_bytes = 0;            // of the pages that `ranges` names, of all heads
};

class PassKv {
public:
    virtual ~PassKv() = default;
    /// Returns the layout of a layer's rows and KV chunks.
    [[nodiscard]] virtual const KvLayout& layout(std::int64_t layer) const = 0;
    [[nodiscard]] virtual const KvNodes& nodes() const = 0;
    /// Returns position minus slot of a node, the same for all nodes.
    [[nodiscard]] virtual std::int64_t text_offset() const = 0;
    /// Returns the table of a layer's committed KV chunks by number: addresses of those on the device, null for those
    /// that stream. Graphs read the table at each launch, so it must not move.
    [[nodiscard]] virtual std::byte* const* chunks(std::int64_t layer) const = 0;
    /// Returns the view pages of a layer, which attention folds before the slots. They are at the same place in every
    /// pass.
    [[nodiscard]] virtual LayerPages pages(std::int64_t /*layer*/) const { return {}; }
    /// Return the rows of nodes in device memory, [nodes().max_nodes(), n_kv_heads, head_dim]: K by scratch_k(), V by
    /// scratch_v().
    [[nodiscard]] virtual std::byte* scratch_k(std::int64_t layer) const = 0;
    [[nodiscard]] virtual std::byte* scratch_v(std::int64_t layer) const = 0;
    /// Returns how many committed KV chunks of a layer, from the first, are always on the device.
    [[nodiscard]] virtual std::int64_t resident_chunks(std::int64_t layer) const = 0;
    /// Returns the host memory of the committed KV chunks that stream, which this object owns; null if none streams.
    [[nodiscard]] virtual HostKv* host() = 0;
    /// Returns the states of the recurrent layers, which this object owns; null if no layer is recurrent.
    [[nodiscard]] virtual RecurrentStates* states() = 0;
};

}  // namespace slipstream
