// The host arrays that are arguments of the ops of a CUDA graph. They are in one memory block on the host; the graph
// reads a copy of the block, with the same layout, in device memory. This file decides the offset of each array, and
// writes the new values into the host block before each launch of the graph. It copies nothing: the caller copies the
// ranges that refresh() returns.
//
// At the start of the block: what changes with every pass (scratch rows, positions, the launch plan of attention, made
// once for all layers that share it). At its end: tables of KV chunks, which change only if a KV chunk was added.
// Several graphs use one block in turn; what differs is written, and copied, again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/graph.h"

namespace slipstream::cuda {

/// Calls of attention in a graph that share their arrays. Offsets are bytes from the start of the block.
struct GraphAttention {
    AttentionArgs args;               // arguments of the first call of attention that has these arrays
    std::int64_t n_chunks = 0;        // KV chunks that launches have room for
    std::int64_t path_rows_each = 0;  // scratch rows that each token's path has room for (graph_path_rows())
    GatherBounds bounds;              // scratch rows and gathers that plans have room for
    AttentionPlan at_capture;         // launch plan; later plans must launch alike
    AttentionPlan plan;               // launch plan of the latest launch
    std::size_t place = 0;            // offset of an AttentionPlace
    std::size_t positions = 0;        // offset of [n_tokens]
    std::size_t tiles = 0;            // offset of [at_capture.tiles.size()]
    std::size_t gathers = 0;          // offset of [bounds.gathers]
    std::size_t rows = 0;             // offset of [bounds.rows]
    std::size_t path_begin = 0;       // offset of [n_tokens]; only without tensor cores
    std::size_t path_rows = 0;        // offset of [n_tokens, path_rows_each]; only without tensor cores
};

/// Byte ranges of the block that a refresh has changed: [0, front_end) and [tables_begin, tables_end).
struct GraphChanges {
    std::size_t front_end = 0;
    std::size_t tables_begin = 0;
    std::size_t tables_end = 0;
};

/// Arrays of one graph.
class GraphArrays {
public:
    /// `block_bytes`: size of the block. `card`: for launch plans of attention.
    GraphArrays(std::size_t block_bytes, const AttentionCard& card)
        : block_bytes_(block_bytes), back_(block_bytes), card_(card) {}

    // Called while the graph is captured. Each throws OutOfBudget if the block has no room left.

    /// Adds an array of `n` entries at `host`, which every launch reads again, and returns its offset in bytes. The
    /// same array gets the same offset.
    [[nodiscard]] std::size_t add_rows(const std::int32_t* host, std::int64_t n);
    /// Adds a call of attention, which must compute the whole fold (CHECKed). Returns its arrays, those of an earlier
    /// call with equal arguments if there is one; the reference is valid until the next call. Every launch reads the
    /// host arrays of `args` again.
    [[nodiscard]] const GraphAttention& add_attention(const AttentionArgs& args);
    /// Adds the table of KV chunks of a layer for a call of `attention`, and returns its offset in bytes. Every launch
    /// reads `chunks` again.
    [[nodiscard]] std::size_t add_table(const std::byte* const* chunks, const GraphAttention& attention);

    /// Writes what a launch with `numbers` reads into `block`, the host block as it was last copied. Returns the ranges
    /// to copy, or nothing if a launch plan does not launch like the one at the capture, or if something needs more
    /// room than there is; `block` may have changed even then.
    [[nodiscard]] std::optional<GraphChanges> refresh(std::byte* block, const GraphNumbers& numbers);
    /// Marks the contents of `block` as unknown, so that the next refresh() writes all tables again: call it if the
    /// block was lost or only partly copied.
    static void forget(std::byte* block, std::size_t bytes);

private:
    struct Rows {
        const std::int32_t* host = nullptr;
        std::int64_t n = 0;
        std::size_t offset = 0;
    };
    struct Table {
        const std::byte* const* host = nullptr;
        std::size_t attention = 0;
        std::size_t offset = 0;
    };
    [[nodiscard]] std::size_t take_front(std::size_t bytes);
    [[nodiscard]] bool refresh_attention(std::byte* block, GraphAttention& attention, const GraphNumbers& numbers);
    void refresh_table(std::byte* block, const Table& table, GraphChanges& changes) const;
    template <typename T>
    void put(std::byte* block, std::size_t offset, const T* from, std::size_t n);

    std::size_t block_bytes_;
    std::size_t front_ = 0;
    std::size_t back_;
    AttentionCard card_;
    std::vector<Rows> rows_;
    std::vector<GraphAttention> attentions_;
    std::vector<Table> tables_;
    std::size_t used_end_ = 0;  // end of the front that the running refresh has used
};

}  // namespace slipstream::cuda
