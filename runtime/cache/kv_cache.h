// The KV cache of one text: committed positions in chunks, and a scratch of rows for nodes that are not committed.
//
// Invariant of its users: the cache holds all committed tokens but the last; a pass feeds whatever is missing, hangs
// guesses under it, and then commits one path. Scratch nodes survive passes until commit() or forget(), so a draft
// model can grow its tree level by level. Committing moves rows, it computes nothing.
//
// It joins three parts: the bookkeeping of nodes (KvNodes), the device's store (DeviceKv), and where a KvPlacement says
// that chunks stream the host's (HostKv). A layer's first chunks are resident; the others fill in the tail on the
// device, are flushed to the host once they are full, and passes read them from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/cache/device_kv.h"
#include "runtime/cache/host_kv.h"
#include "runtime/cache/kv_nodes.h"
#include "runtime/cache/pass_kv.h"

namespace slipstream {

/// Where the committed chunks of a cache lie.
struct KvPlacement {
    std::vector<std::int64_t> resident_chunks{};  // [n_layers], of each layer, from the first; empty: all
    PinnedArena* arena = nullptr;                 // of those that stream; outlives the cache
};

class KvCache final : public PassKv {
public:
    /// Memory for `context_tokens` positions (rounded up to chunks) and `max_nodes` scratch rows of every layer: on the
    /// device taken here, for what streams reserved on the host, where it follows the text. Throws OutOfBudget.
    KvCache(Device& device, const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
            std::int64_t max_nodes, const KvPlacement& placement = {});

    /// What the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t device_bytes(const KvShape& shape, std::int64_t n_layers,
                                                  std::int64_t context_tokens, std::int64_t max_nodes,
                                                  std::span<const std::int64_t> resident_chunks = {});

    // As what a pass reads.
    [[nodiscard]] const KvShape& shape() const override { return store_.shape(); }
    [[nodiscard]] const KvNodes& nodes() const override { return nodes_; }
    [[nodiscard]] std::int64_t text_offset() const override { return 0; }
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override { return store_.chunks(layer); }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const override { return store_.scratch_k(layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const override { return store_.scratch_v(layer); }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t layer) const override {
        return store_.resident_chunks(layer);
    }
    [[nodiscard]] HostKv* host() override { return host_ ? &*host_ : nullptr; }
    [[nodiscard]] const DeviceKv& store() const { return store_; }

    [[nodiscard]] std::int64_t n_layers() const { return store_.n_layers(); }
    [[nodiscard]] std::int64_t context_tokens() const { return nodes_.context_tokens(); }
    [[nodiscard]] std::int64_t n_committed() const { return nodes_.n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const { return nodes_.n_nodes(); }
    [[nodiscard]] std::int64_t max_nodes() const { return nodes_.max_nodes(); }
    [[nodiscard]] NodeId parent(NodeId node) const { return nodes_.parent(node); }
    /// Absolute position of a node: its slot.
    [[nodiscard]] std::int64_t position(NodeId node) const { return nodes_.slot(node); }
    /// Whether chunks of any layer stream.
    [[nodiscard]] bool streams() const { return host_.has_value(); }

    /// A new scratch row, as KvNodes::add. Memory of the host for its chunk is asked for.
    NodeId add_node(NodeId parent);
    /// Moves the rows of `path` (its first node hangs under the committed tip, each next one under the one before)
    /// behind the committed ones in every layer, in stream order; all other nodes are forgotten. Throws OutOfBudget
    /// where the system has no memory for a chunk that is full, and has then done nothing.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Waits until the host has the memory that a commit of `n_rows` more needs; commit() does so by itself. For
    /// whoever commits to several caches, all or none. Throws as commit().
    void await_room(std::int64_t n_rows);
    /// Drops all nodes.
    void forget() { nodes_.forget(); }
    /// Keeps the first `n_tokens` committed positions and drops all nodes. Where the last chunk of them is on the host
    /// only, it comes back.
    void truncate(ExecRef exec, std::int64_t n_tokens);
    /// The same for a cache of which nothing streams (CHECKed).
    void truncate(std::int64_t n_tokens);
    /// After a failure: drops all nodes, and the positions behind a chunk that was lost on its way to the host or back.
    /// How many are left.
    std::int64_t keep_intact_prefix(ExecRef exec) noexcept;

    /// Copies a node's rows of a layer, [K|V] of shape().scratch_row_bytes(), to `out` in host memory, in stream order.
    void read_rows(ExecRef exec, std::int64_t layer, NodeId node, std::byte* out) const;
    /// Copies a chunk that holds committed positions, wherever it is, to `out` [chunk_bytes] in host memory; done when
    /// it returns. What lies behind the committed positions is undefined.
    void read_chunk(ExecRef exec, std::int64_t layer, std::int64_t chunk, std::byte* out);
    /// Writes the positions [first, n_tokens) after the `first` committed ones, a multiple of 256; there are no nodes
    /// (CHECKed). `read(layer, chunk, out)` fills out [chunk_bytes] with what read_chunk() gave on a device of the same
    /// kind, chunks ascending, each of all layers. If it throws, the first positions remain.
    void restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read);
    /// The same in steps, for whoever fills several caches from one source: begin, restore_chunk() of each chunk and
    /// layer in that order, end; the positions are there after the end. `fill` as `read`.
    void begin_restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens);
    void restore_chunk(ExecRef exec, std::int64_t n_tokens, std::int64_t layer, std::int64_t chunk,
                       const std::function<void(std::byte*)>& fill);
    void end_restore(std::int64_t n_tokens);

    /// Positions up to `n_tokens` become committed; their rows are written layer by layer by the pass that follows
    /// (PromptStream), which leaves all but the last, unfilled chunk on the host where they stream.
    void reserve(std::int64_t n_tokens);
    /// Those rows are there; chunks below n_tokens / 256 are on the host with `flush_use` of HostKv::flushed().
    void publish(std::uint64_t flush_use);
    /// Those rows will not come: back to `n_tokens`, as many as were there before reserve(). Drops all nodes.
    void rollback(std::int64_t n_tokens);

private:
    void keep_chunks(std::int64_t n_chunks) noexcept;
    void open_place(Stream& compute, std::int64_t chunk);
    void fetch_tail(Stream& compute, std::int64_t chunk);

    KvNodes nodes_;
    DeviceKv store_;
    std::optional<HostKv> host_;  // where something streams
};

}  // namespace slipstream
