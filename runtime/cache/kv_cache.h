// KvCache: the KV cache of one sequence. It holds committed positions in KV chunks, and scratch rows for nodes that are
// not committed.
//
// Its users keep this invariant between two passes of generation: the cache holds all committed tokens except the
// last. A pass computes the tokens that are missing (at the start of a sequence, more than one), with draft nodes below
// them; then one path is committed. Scratch nodes are kept across passes until commit() or forget(), so a draft model
// can grow its tree level by level. A commit moves rows; it computes nothing.
//
// It combines three parts: the bookkeeping of nodes (KvNodes), the device memory (DeviceKv), and, if chunks stream
// according to KvPlacement, the host memory (HostKv). The first chunks of a layer are resident. The others fill in the
// tail on the device and are flushed to the host when they are full; passes then read them from there.
//
// A layer with a sliding window may keep a ring of its last chunks only (KvPlacement::windows, kv_ring.h). Then a cut
// that needs chunks which are overwritten already keeps no position at all, see positions_after_cut().
#pragma once

#include <algorithm>
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

/// Bytes of host memory that checkpoints of the recurrent layers of a cache may take: 6 of a model with 27 B weights
/// (157 MB each).
inline constexpr std::size_t kCheckpointBytes = std::size_t{1} << 30;

/// Where the committed KV chunks of a cache are.
struct KvPlacement {
    /// [n_layers]: number of resident KV chunks, from the first; empty: all. A ring is resident if this is at least
    /// kept_chunks(), else it streams.
    std::vector<std::int64_t> resident_chunks{};
    PinnedArena* arena = nullptr;  // memory of the KV chunks that stream; must outlive the cache
    /// [n_layers]: sliding window of each layer (0: none), which then keeps kept_chunks() KV chunks; empty: all layers
    /// keep the KV chunks of the whole context.
    std::vector<std::int64_t> windows{};
    /// Most draft nodes at the same time, whose inputs recurrent layers store; 0: as many as there are nodes.
    std::int64_t max_drafts = 0;
    /// Most bytes of host memory for checkpoints of recurrent layers.
    std::size_t checkpoint_bytes = kCheckpointBytes;
};

class KvCache final : public PassKv {
public:
    /// Provides `context_tokens` positions (rounded up to KV chunks) and `max_nodes` scratch rows in every layer;
    /// `layouts` [n_layers] are the layers' layouts. Device memory is allocated here. Host memory for what streams is
    /// reserved here, and locked as the text grows. Throws OutOfBudget.
    KvCache(Device& device, std::span<const KvLayout> layouts, std::int64_t context_tokens, std::int64_t max_nodes,
            const KvPlacement& placement = {});

    /// Returns the bytes that the constructor takes from the device's memory budget.
    [[nodiscard]] static std::size_t device_bytes(std::span<const KvLayout> layouts, std::int64_t context_tokens,
                                                  std::int64_t max_nodes,
                                                  std::span<const std::int64_t> resident_chunks = {},
                                                  std::span<const std::int64_t> windows = {},
                                                  std::int64_t max_drafts = 0);

    // Returns the layout of a layer's rows and KV chunks. This and the next functions implement PassKv.
    [[nodiscard]] const KvLayout& layout(std::int64_t layer) const override { return store_.layout(layer); }
    [[nodiscard]] const KvNodes& nodes() const override { return nodes_; }
    [[nodiscard]] std::int64_t text_offset() const override { return 0; }
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override { return store_.chunks(layer); }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const override { return store_.scratch_k(layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const override { return store_.scratch_v(layer); }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t layer) const override {
        return store_.resident_chunks(layer);
    }
    [[nodiscard]] HostKv* host() override { return host_ ? &*host_ : nullptr; }
    [[nodiscard]] RecurrentStates* states() override { return states_ ? &*states_ : nullptr; }
    [[nodiscard]] const DeviceKv& store() const { return store_; }

    [[nodiscard]] std::int64_t n_layers() const { return store_.n_layers(); }
    [[nodiscard]] std::int64_t context_tokens() const { return nodes_.context_tokens(); }
    [[nodiscard]] std::int64_t n_committed() const { return nodes_.n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const { return nodes_.n_nodes(); }
    [[nodiscard]] std::int64_t max_nodes() const { return nodes_.max_nodes(); }
    [[nodiscard]] NodeId parent(NodeId node) const { return nodes_.parent(node); }
    /// Returns the absolute position of a node; in a cache this is its slot.
    [[nodiscard]] std::int64_t position(NodeId node) const { return nodes_.slot(node); }
    /// Returns whether any KV chunk of any layer streams.
    [[nodiscard]] bool streams() const { return host_.has_value(); }

    /// Adds a node with a scratch row, like KvNodes::add(), and requests host memory for the KV chunk of its position.
    /// If layers are recurrent, at most KvPlacement::max_drafts draft nodes may exist (CHECKed).
    NodeId add_node(NodeId parent, NodeKind kind = NodeKind::Draft);
    /// Commits the rows of `path` as the next positions in every layer, in stream order, and drops all other nodes. The
    /// first node of `path` must be a child of the committed tip, each further one a child of the node before it
    /// (CHECKed). Throws OutOfBudget if the system has no host memory for a KV chunk that becomes full; nothing has
    /// changed then.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Waits until there is host memory for a commit of `n_rows` more rows. commit() does this, too; call it first to
    /// commit to all of several caches or to none. Throws as commit().
    void await_room(std::int64_t n_rows);
    /// Drops all nodes; their scratch rows become free.
    void forget() {
        nodes_.forget();
        if (states_) states_->drop_next();
    }
    /// Returns how many positions remain if the cache is cut to `n_tokens` (at most n_committed()): all of them, or 0
    /// if a ring has overwritten what its window would need; if recurrent states have tokens that would be cut off,
    /// those up to their last checkpoint.
    [[nodiscard]] std::int64_t positions_after_cut(std::int64_t n_tokens) const;
    /// Returns the first KV chunk of a layer that can be read; a ring has overwritten the chunks before it.
    [[nodiscard]] std::int64_t first_kept_chunk(std::int64_t layer) const { return first_kept_[layer]; }
    /// Returns the first KV chunk that queries from position `position` on read in a layer, if it keeps a ring; else 0.
    [[nodiscard]] std::int64_t first_read_chunk(std::int64_t layer, std::int64_t position) const;
    /// Returns the first KV chunk that restore() reads for a layer. In a ring, the KV chunks from there on suffice to
    /// continue a sequence of `n_tokens`, also after a cut by kCutSlackTokens. Returns 0 for other layers.
    [[nodiscard]] std::int64_t first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const;
    /// Keeps the first positions_after_cut(n_tokens) committed positions and drops all nodes. If their last, partly
    /// filled KV chunk is on the host only, it is copied back to the tail.
    void truncate(ExecRef exec, std::int64_t n_tokens);
    /// Keeps the first positions_after_cut(n_tokens) committed positions and drops all nodes, for a cache in which
    /// nothing streams (CHECKed), so that nothing must be copied.
    void truncate(std::int64_t n_tokens);
    /// Returns a number that changes whenever rows of the KV chunk may be written. As long as it is the same, rows that
    /// a cut has dropped are still in their place. Returns 0 if they never are, since something streams or a layer
    /// keeps a ring.
    [[nodiscard]] std::uint64_t chunk_version(std::int64_t chunk) const { return stays_ ? versions_[chunk] : 0; }
    /// Commits the positions [n_committed(), n_tokens) again, which a cut has dropped: the chunk_version() of their KV
    /// chunks must be as it was before the cut, and not 0. There must be no nodes (CHECKed).
    void recommit(std::int64_t n_tokens);
    /// Recovers after a failed copy: drops all nodes and all positions from the first lost KV chunk on, like
    /// truncate(). Returns the number of positions that remain.
    std::int64_t keep_intact_prefix(ExecRef exec) noexcept;

    /// Enqueues copies of a node's K row and then its V row of a layer to `out`: 2 * layout(layer).scratch_row_bytes()
    /// bytes of host memory, which must stay valid until the stream has run the copies.
    void read_rows(ExecRef exec, std::int64_t layer, NodeId node, std::byte* out) const;
    /// Copies a KV chunk that has committed positions, on the device or the host, to `out`
    /// [layout(layer).chunk_bytes()] in host memory, before it returns. It must not be before first_kept_chunk(layer)
    /// (CHECKed). Slots past the committed positions are undefined.
    void read_chunk(ExecRef exec, std::int64_t layer, std::int64_t chunk, std::byte* out);
    /// Writes the positions [first, n_tokens); `first` is n_committed() and a multiple of 256, and there are no nodes
    /// (CHECKed). If layers are recurrent, `first` must be 0, and their kept states must be after `n_tokens` positions
    /// already (CHECKed). `read(layer, chunk, out)` must fill `out` [layout(layer).chunk_bytes()] with what
    /// read_chunk() gave on a device of equal kind. `read` is called for ascending KV chunks, for all layers of one
    /// before the next one; those of a layer before first_restored_chunk() are left out. If `read` throws,
    /// positions_after_cut(first) positions remain.
    void restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read);
    /// restore() in steps, to fill several caches from one source: begin_restore(), restore_chunk() for each KV chunk
    /// and layer in the order of restore(), end_restore(). The positions are committed by end_restore(); without it,
    /// call keep_intact_prefix(). `fill(out)` is like `read`.
    void begin_restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens);
    void restore_chunk(ExecRef exec, std::int64_t n_tokens, std::int64_t layer, std::int64_t chunk,
                       const std::function<void(std::byte*)>& fill);
    void end_restore(std::int64_t n_tokens);

    /// Counts the positions up to `n_tokens` as committed. The following pass writes their rows layer by layer
    /// (PromptStream); of layers that stream, it leaves the KV chunks on the host. Requires that there are no nodes
    /// (CHECKed) and, if anything streams, that n_tokens is a multiple of 256 (CHECKed by publish()).
    void reserve(std::int64_t n_tokens);
    /// Call after reserve(), before the first of the reserved rows is written: rings count the KV chunks that these
    /// rows will overwrite as lost.
    void begin_reserved_rows() { overwrite_to(n_committed()); }
    /// Call after reserve(), when the work that writes the reserved rows is enqueued. Of layers that stream, counts the
    /// KV chunks below n_committed() / 256 as on the host after the use `flush_use` of HostKv::flushed() (0: they are
    /// there, or none streams), and frees all tail slots. Of recurrent layers, keeps the states that the rows have.
    void publish(std::uint64_t flush_use);
    /// Call after reserve() if the reserved rows will not be written: returns to positions_after_cut(n_tokens)
    /// positions, where `n_tokens` is as before reserve() or less. Drops all nodes.
    void rollback(std::int64_t n_tokens);

private:
    void overwrite_to(std::int64_t n_tokens);
    void count_writes(std::int64_t n_tokens);
    void keep_chunks(std::int64_t n_chunks) noexcept;
    void drop_all() noexcept;
    void commit_states(ExecRef exec, std::span<const NodeId> path);
    void keep_positions(std::int64_t n_tokens);
    void open_place(Stream& compute, std::int64_t chunk);
    void fetch_tail(Stream& compute, std::int64_t chunk);

    KvNodes nodes_;
    DeviceKv store_;
    std::optional<HostKv> host_;             // only if something streams
    std::optional<RecurrentStates> states_;  // only if a layer is recurrent
    std::vector<std::int32_t> drafts_;       // of a path that is committed, for states_
    std::vector<std::int64_t> windows_;      // [n_layers], or empty: see KvPlacement
    std::vector<std::int64_t> first_kept_;   // [n_layers]: see first_kept_chunk()
    bool stays_ = true;                      // nothing streams, and no layer keeps a ring or a state
    std::vector<std::uint64_t> versions_;    // [KV chunks of a layer]: see chunk_version()
};

}  // namespace slipstream
