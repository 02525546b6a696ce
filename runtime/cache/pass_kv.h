// What a forward pass reads of KV, and where it leaves its rows: the cache of a text, or a view that stands for it.
//
// Slots number what is there: committed rows in chunks of 256 slots, those of nodes behind them in scratch. Attention
// goes by slots alone. Where a KV leaves out a part of its text, a node stands text_offset() further on in the text
// than its slot says, and rope turns by that position; keys of committed rows are stored turned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "runtime/cache/host_kv.h"
#include "runtime/cache/kv_nodes.h"

namespace slipstream {

class PassKv {
public:
    virtual ~PassKv() = default;
    [[nodiscard]] virtual const KvShape& shape() const = 0;
    [[nodiscard]] virtual const KvNodes& nodes() const = 0;
    /// Position of a node in the text less its slot, the same for all nodes.
    [[nodiscard]] virtual std::int64_t text_offset() const = 0;
    /// A layer's committed chunks that rest on the device, by number; null for those that stream. Graphs read the table
    /// anew at each launch, so it stays where it is.
    [[nodiscard]] virtual std::byte* const* chunks(std::int64_t layer) const = 0;
    /// [nodes().max_nodes(), n_kv_heads, head_dim]: rows of nodes.
    [[nodiscard]] virtual std::byte* scratch_k(std::int64_t layer) const = 0;
    [[nodiscard]] virtual std::byte* scratch_v(std::int64_t layer) const = 0;
    /// Committed chunks of a layer that rest on the device for good, from the first.
    [[nodiscard]] virtual std::int64_t resident_chunks(std::int64_t layer) const = 0;
    /// Holds the others; null: there are none.
    [[nodiscard]] virtual HostKv* host() = 0;
};

}  // namespace slipstream
