// The KV cache of one text: committed positions in chunks, and a scratch of rows for nodes that are not committed.
//
// Invariant of its users: the cache holds all committed tokens but the last; a pass feeds whatever is missing, hangs
// guesses under it, and then commits one path. Scratch nodes survive passes until commit() or forget(), so a draft
// model can grow its tree level by level. Committing moves rows, it computes nothing.
//
// A layer's first chunks are resident. The others stream, where a KvPlacement says so: a chunk fills in the tail, a few
// slots on the device; once full it is flushed to pinned host memory behind the compute stream, and passes read it from
// there (PassStream). Which chunks a pass reads from the host is frozen before the pass begins (snapshot()), so a full
// chunk stays in its slot until the first program that reads it from the host; a slot that must be written before that
// thaws the program (design section 4).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/indexed.h"
#include "kernels/device.h"
#include "offload/block_slab.h"

namespace slipstream {

/// A row of the scratch.
using NodeId = std::int32_t;
/// Parent of a node that hangs directly under the last committed position.
inline constexpr NodeId kCommittedTip = -1;

/// Chunks of one layer in one piece of memory: the unit of allocation.
inline constexpr std::int64_t kChunksPerExtent = 16;
/// Slots of a layer that streams: two full chunks on their way out, and the one that fills.
inline constexpr std::int64_t kTailChunks = 3;

/// Where the committed chunks of a cache lie.
struct KvPlacement {
    Indexed<std::int64_t> resident_chunks{};  // [n_layers], of each layer, from the first; empty: all
    PinnedArena* arena = nullptr;             // of those that stream; outlives the cache
};

/// Who has programs that were frozen ahead of their pass.
class FrozenPrograms {
public:
    virtual ~FrozenPrograms() = default;
    /// Gives them up: the next program is made anew. No pass is running.
    virtual void invalidate(Stream& compute) = 0;
};

class KvCache {
public:
    /// Memory for `context_tokens` positions (rounded up to chunks) and `max_nodes` scratch rows of every layer on the
    /// device, taken once, in extents of 16 chunks of one layer; what streams takes host memory as it fills, and
    /// nothing is begun that the arena could not hold. Throws OutOfBudget.
    KvCache(Device& device, const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
            std::int64_t max_nodes, const KvPlacement& placement = {});
    /// Waits for flushes under way.
    ~KvCache();
    KvCache(const KvCache&) = delete;
    KvCache& operator=(const KvCache&) = delete;

    /// What the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t device_bytes(const KvShape& shape, std::int64_t n_layers,
                                                  std::int64_t context_tokens, std::int64_t max_nodes,
                                                  std::span<const std::int64_t> resident_chunks = {});

    [[nodiscard]] const KvShape& shape() const { return shape_; }
    [[nodiscard]] std::int64_t n_layers() const { return n_layers_; }
    [[nodiscard]] std::int64_t n_chunks() const { return n_chunks_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] std::int64_t n_committed() const { return n_committed_; }
    [[nodiscard]] std::int64_t n_nodes() const { return static_cast<std::int64_t>(parents_.size()); }
    [[nodiscard]] std::int64_t max_nodes() const { return max_nodes_; }
    [[nodiscard]] NodeId parent(NodeId node) const { return parents_[node]; }
    /// Absolute position of a node.
    [[nodiscard]] std::int64_t position(NodeId node) const { return positions_[node]; }

    /// A new scratch row below `parent` (kCommittedTip or an existing node). Its position must lie inside the context
    /// and the scratch must have room: both CHECKed, since the loop plans for them. Rows are numbered from 0 after a
    /// commit.
    NodeId add_node(NodeId parent);
    /// Moves the rows of `path` (its first node hangs under the committed tip, each next one under the one before)
    /// behind the committed ones in every layer, in stream order; all other nodes are forgotten.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Drops all nodes.
    void forget();
    /// Committed positions below were computed as prompt (Phase::Prefill), as whoever feeds them has said; fewer
    /// where the cache was cut since.
    [[nodiscard]] std::int64_t prompt_rows() const { return std::min(prompt_rows_, n_committed_); }
    void set_prompt_rows(std::int64_t n_tokens) { prompt_rows_ = n_tokens; }
    /// Keeps the first `n_tokens` committed positions and drops all nodes. Where the last chunk of them is on the host
    /// only, it comes back.
    void truncate(ExecRef exec, std::int64_t n_tokens);
    /// The same for a cache of which nothing streams (CHECKed).
    void truncate(std::int64_t n_tokens);

    /// Copies a chunk that holds committed positions, wherever it is, to `out` [chunk_bytes] in host memory; done when
    /// it returns. What lies behind the committed positions is undefined.
    void read_chunk(ExecRef exec, std::int64_t layer, std::int64_t chunk, std::byte* out);
    /// Writes the first `n_tokens` positions of an empty cache: `read(layer, chunk, out)` fills out [chunk_bytes] with
    /// what read_chunk() gave on a device of the same kind, chunks ascending, each of all layers. Where it throws, the
    /// cache is empty.
    void restore(ExecRef exec, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read);

    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const { return chunks_.data() + layer * n_chunks_; }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const { return scratch_row_base(2 * layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const { return scratch_row_base(2 * layer + 1); }

    // For those that move chunks: PassStream, PromptStream, sessions.

    /// Whether chunks of any layer, or of this one, stream.
    [[nodiscard]] bool streams() const { return slab_.has_value(); }
    [[nodiscard]] bool streams(std::int64_t layer) const { return resident_chunks(layer) < n_chunks_; }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t layer) const { return resident_[layer]; }
    /// Full chunks of a layer that the host holds, or will once flushed() has reached flush_use() of the last.
    [[nodiscard]] std::int64_t host_chunks() const { return host_chunks_; }
    [[nodiscard]] const Event& flushed() const { return *flushed_; }
    [[nodiscard]] std::uint64_t flush_use(std::int64_t chunk) const { return flush_use_[chunk]; }
    /// Host memory of a chunk that streams, chunks of an extent behind one another, the first extent beginning with the
    /// first chunk that is not resident; taken now where it is not yet.
    [[nodiscard]] std::byte* host_chunk(std::int64_t layer, std::int64_t chunk);
    /// Where a chunk lies on the device while a pass reads it; null afterwards.
    void set_chunk(std::int64_t layer, std::int64_t chunk, std::byte* data) {
        chunks_[layer * n_chunks_ + chunk] = data;
    }
    /// The slot that a chunk of a streaming layer fills in.
    [[nodiscard]] std::byte* tail_slot(std::int64_t layer, std::int64_t chunk) const;

    /// `programs` outlives the cache or unregisters by null.
    void set_frozen_programs(FrozenPrograms* programs) { programs_ = programs; }
    /// host_chunks() of a program that is made now: chunks below it are read from the host in its pass.
    [[nodiscard]] std::int64_t snapshot();
    /// No program is made ahead any more: the last one runs, or was given up.
    void drop_program() { frozen_.reset(); }

    /// Positions up to `n_tokens` become committed; their rows are written layer by layer by the pass that follows
    /// (PromptStream), which leaves all but the last, unfilled chunk on the host where they stream.
    void reserve(std::int64_t n_tokens);
    /// Those rows are there; chunks below n_tokens / 256 are on the host with `flush_use` of flushed().
    void publish(std::uint64_t flush_use);
    /// Those rows will not come: back to `n_tokens`, as many as were there before reserve(). Drops all nodes.
    void rollback(std::int64_t n_tokens);

    /// Copies chunks to the host behind the compute stream's work so far: `copy(stream)` enqueues them. The use of
    /// flushed() that tells when they are done.
    template <typename Copy>
    std::uint64_t flush(ExecRef exec, const Copy& copy) {
        copy_out_->wait(*written_, exec.stream.record(*written_));
        copy(*copy_out_);
        return copy_out_->record(*flushed_);
    }

private:
    [[nodiscard]] std::byte* scratch_row_base(std::int64_t index) const {
        return scratch_.data() + static_cast<std::size_t>(index * max_nodes_) * shape_.scratch_row_bytes();
    }
    void take_resident(Device& device);
    void take_streaming(Device& device, PinnedArena& arena);
    void open_slot(ExecRef exec, std::int64_t chunk);
    void flush_chunk(ExecRef exec, std::int64_t chunk);
    void fetch_tail(ExecRef exec, std::int64_t chunk);

    KvShape shape_;
    std::int64_t n_layers_;
    std::int64_t context_tokens_;
    std::int64_t n_chunks_;  // of a layer
    std::int64_t max_nodes_;
    std::int64_t n_committed_ = 0;
    std::int64_t prompt_rows_ = 0;
    Indexed<std::int64_t> resident_;  // [n_layers]: chunks of each
    std::vector<Buffer> extents_;
    Indexed<std::byte*> chunks_;       // [n_layers * n_chunks]
    Buffer scratch_;                   // [n_layers][K|V][max_nodes][n_kv_heads][head_dim]
    Indexed<NodeId> parents_;          // [n_nodes]
    Indexed<std::int64_t> positions_;  // [n_nodes]

    // Of what streams.
    Buffer tail_;                         // [streaming layers][kTailChunks] chunks
    Indexed<std::int64_t> tail_index_;    // [n_layers]: among the streaming layers
    Indexed<std::int64_t> slot_chunk_;    // [kTailChunks]: the chunk that a slot holds, -1: none
    std::optional<BlockSlab> slab_;       // extents
    Indexed<std::int64_t> first_extent_;  // [n_layers]: into host_extents_
    Indexed<std::byte*> host_extents_;    // from the first chunk of each layer that streams; null: not taken yet
    std::unique_ptr<Stream> copy_out_;
    std::unique_ptr<Event> written_;  // rows that a flush copies
    std::unique_ptr<Event> flushed_;
    Indexed<std::uint64_t> flush_use_;  // [n_chunks]
    std::int64_t host_chunks_ = 0;
    std::optional<std::int64_t> frozen_;  // host_chunks_ of the program that was made ahead
    FrozenPrograms* programs_ = nullptr;
};

}  // namespace slipstream
