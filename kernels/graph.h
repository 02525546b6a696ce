// Graphs: work of a stream that was enqueued once and is launched again as a whole, so that the host no longer walks
// through its ops. What a launch shares with the first time: shapes, views, scalars, addresses. What it reads anew: all
// memory of the device, and the host arrays that ops of a graph may be given (positions and paths of attention, tables
// of chunks, scratch rows of kv_write), which therefore stay where they are as long as the graph is launched.
//
// A device without graphs says so (Stream::has_graphs), and its callers enqueue each time: nothing else differs.
#pragma once

#include <cstdint>

namespace slipstream {

/// What ops of a graph were given by value and what a launch may change.
struct GraphNumbers {
    std::int64_t n_committed = 0;  // AttentionArgs::n_committed of every attention in it
};

/// Owned by whoever captured it; its stream and device outlive it.
class Graph {
public:
    virtual ~Graph() = default;
    /// Kernels and copies that a launch does.
    [[nodiscard]] virtual std::int64_t n_nodes() const = 0;
};

/// Chunks that attention of a graph is made for where a pass ends in its `n`-th: the next of 1, 2, 3, 4, 6, 8, 12, 16,
/// 24, ... Passes that end within the same number share a graph: the longer a text, the longer a graph lives, and at
/// most a third of what it makes room for lies behind the end.
[[nodiscard]] constexpr std::int64_t graph_chunks(std::int64_t n) {
    std::int64_t power = 1;
    while (power < n) power *= 2;
    return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

}  // namespace slipstream
