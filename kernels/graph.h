// Graphs: work of a stream that was enqueued once and is launched again as a whole, so that the host need not enqueue
// each op. A launch keeps the shapes, views, scalars and addresses of the first time. It reads again: all device
// memory, and the host arrays that ops in a graph may get (positions and paths of attention, tables of KV chunks,
// scratch rows of kv_write). So these arrays must stay at their addresses as long as the graph is launched.
//
// If Stream::has_graphs() is false, callers enqueue the work each time; nothing else differs.
#pragma once

#include <cstdint>

namespace slipstream {

/// Numbers that ops in a graph got by value and that a launch may change.
struct GraphNumbers {
    std::int64_t n_committed = 0;  // AttentionArgs::n_committed of every attention in it
};

/// Work of a stream that can be launched again as a whole. The caller of Stream::capture() owns it. Its stream and
/// device must outlive it.
class Graph {
public:
    virtual ~Graph() = default;
    /// Returns the number of kernels and copies of a launch.
    [[nodiscard]] virtual std::int64_t n_nodes() const = 0;
};

/// Returns the number of KV chunks for which the attention of a graph is made if a pass ends in KV chunk number `n`
/// (from 1): the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... Passes with the same result share a graph. So a graph is
/// used longer the longer a sequence is, and at most a third of its room is past the end.
[[nodiscard]] constexpr std::int64_t graph_chunks(std::int64_t n) {
    std::int64_t power = 1;
    while (power < n) power *= 2;
    return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

}  // namespace slipstream
