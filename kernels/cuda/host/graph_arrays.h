// The host arrays that a graph's ops were given: where each lies in the device memory that the graph reads, and how it
// is made anew for a launch. Pure: works on a block of host memory whose twin of the same layout the graph reads; the
// caller copies what refresh() says.
//
// From the block's front: what changes with every pass (scratch rows, positions, the plan of attention, made once for
// all layers that share it). From its back: tables of chunks, which change where a chunk was added, or not at all.
// Several graphs use one block in turn: what is not the same in it is written, and copied, again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/graph.h"

namespace slipstream::cuda {

/// Calls of attention of a graph that have their arrays in common. Offsets are of the block.
struct GraphAttention {
    AttentionArgs args;               // of the first call
    std::int64_t n_chunks = 0;        // that launches are made for
    std::int64_t path_rows_each = 0;  // graph_path_rows(): room for each token
    GatherBounds bounds;              // room for plans
    AttentionPlan at_capture;         // launches are like it
    AttentionPlan plan;               // of the latest launch
    std::size_t place = 0;            // AttentionPlace
    std::size_t positions = 0;        // [n_tokens]
    std::size_t tiles = 0;            // [at_capture.tiles.size()]
    std::size_t gathers = 0;          // [bounds.gathers]
    std::size_t rows = 0;             // [bounds.rows]
    std::size_t path_begin = 0;       // [n_tokens], where no tensor cores compute
    std::size_t path_rows = 0;        // [n_tokens, path_rows_each], likewise
};

/// Bytes of the block that have changed: [0, front_end) and [tables_begin, tables_end).
struct GraphChanges {
    std::size_t front_end = 0;
    std::size_t tables_begin = 0;
    std::size_t tables_end = 0;
};

class GraphArrays {
public:
    GraphArrays(std::size_t block_bytes, const AttentionCard& card)
        : block_bytes_(block_bytes), back_(block_bytes), card_(card) {}

    // While the graph is captured. Each throws OutOfBudget where the block has no room left.

    /// `n` entries at `host`, read at each launch; the offset. The same array again has the same place.
    [[nodiscard]] std::size_t add_rows(const std::int32_t* host, std::int64_t n);
    /// A whole call; valid until the next one. Host arrays of `args` are read at each launch.
    [[nodiscard]] const GraphAttention& add_attention(const AttentionArgs& args);
    /// The chunks that such a call reads, of another layer each; the offset.
    [[nodiscard]] std::size_t add_table(const std::byte* const* chunks, const GraphAttention& attention);

    /// Writes what a launch with `numbers` reads into `block`, the block's bytes as last copied. Nothing where a plan
    /// is not like the one of the capture, or needs more room; the block may have changed all the same.
    [[nodiscard]] std::optional<GraphChanges> refresh(std::byte* block, const GraphNumbers& numbers);
    /// Makes the next refresh() write everything: the block was lost, or copied in part.
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
    std::size_t used_end_ = 0;  // of the front, in the running refresh
};

}  // namespace slipstream::cuda
