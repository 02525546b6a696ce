// Graphs of the passes that a Forward runs repeatedly while everything is resident: decoding, small trees, steps of a
// draft model. Passes of equal PassShape share a graph. With it, the host enqueues a pass by a few calls instead of
// about fifteen per layer.
//
// The first pass of a shape is enqueued op by op, so all its kernels are loaded before a capture. If the shape comes
// again within kMostGraphs passes, it is captured; from then on it is launched. Graphs are bounded in number and in
// nodes: the least recently used ones are dropped. If the device refuses a capture, one notice says so; passes without
// a graph are then enqueued op by op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace slipstream {

/// All that the enqueued work of a pass depends on, except the contents of arrays.
struct PassShape {
    std::int64_t n_tokens = 0;
    std::int64_t n_logit_rows = 0;  // the pass has logits of its last n_logit_rows tokens
    std::int64_t n_chunks = 0;      // graph_chunks() of the KV chunk in which the pass ends
    std::int64_t path_rows = 0;     // graph_path_rows() of the longest path
    const void* paths = nullptr;    // host memory in which graphs read the paths
    const void* scratch = nullptr;  // scratch rows of the KV, device memory
    const void* chunks = nullptr;   // table of the addresses of the KV chunks, host memory
    std::int64_t max_nodes = 0;     // scratch rows of the KV per layer

    friend bool operator==(const PassShape&, const PassShape&) = default;
};

/// Most tokens of a pass that takes a graph. With more, a GPU is busy for longer than the pass takes to enqueue, and
/// the arrays of paths grow with the square of the tokens.
inline constexpr std::int64_t kMostGraphTokens = 64;
/// Most graphs of a Forward, and most nodes of all of them. A driver takes some hundred bytes of GPU memory per node
/// (estimated), outside of any budget: so a few MiB at most.
inline constexpr std::size_t kMostGraphs = 24;
inline constexpr std::int64_t kMostGraphNodes = 16384;

/// Counts since the PassGraphs was created.
struct PassGraphFigures {
    std::int64_t captured = 0;
    std::int64_t launched = 0;
    std::int64_t n_graphs = 0;  // graphs that exist now
    std::int64_t n_nodes = 0;   // nodes of the graphs that exist now
};

class PassGraphs {
public:
    /// `stream` must have graphs (CHECKed). Both must outlive this object.
    PassGraphs(Device& device, Stream& stream);
    PassGraphs(const PassGraphs&) = delete;
    PassGraphs& operator=(const PassGraphs&) = delete;

    /// Enqueues a pass as a graph, which is captured from `enqueue` if the shape has none yet. Returns false, with
    /// nothing enqueued, if the caller must call `enqueue` itself. Allocates nothing if the graph exists. Throws
    /// CudaError if a launch fails.
    template <typename Enqueue>
    [[nodiscard]] bool run(const PassShape& shape, const GraphNumbers& numbers, const Enqueue& enqueue) {
        Entry* entry = meet(shape);
        if (entry == nullptr) return false;
        if (entry->graph == nullptr && !capture(*entry, std::cref(enqueue))) return false;
        if (stream_->launch(*entry->graph, numbers)) {
            ++figures_.launched;
            return true;
        }
        serves_no_more(*entry);
        return false;
    }

    [[nodiscard]] const PassGraphFigures& figures() const { return figures_; }

private:
    struct Entry {
        PassShape shape;
        std::uint64_t used = 0;        // value of clock_ at its last pass; 0: the entry is unused
        std::unique_ptr<Graph> graph;  // null: not captured, or dropped
        int n_outlived = 0;            // number of graphs of the shape that became unusable (Stream::launch())
    };

    // Records a pass of `shape`. Returns its entry if it has a graph or should get one now, else null.
    [[nodiscard]] Entry* meet(const PassShape& shape);
    // Captures the graph of an entry. Returns false if the device refuses.
    [[nodiscard]] bool capture(Entry& entry, const std::function<void()>& enqueue);
    void drop(Entry& entry);
    // Drops a graph that Stream::launch() could no longer use.
    void serves_no_more(Entry& entry);
    // Drops the least recently used graphs, except that of `fresh`, until the bounds are met.
    void bound(const Entry& fresh);

    Device* device_;
    Stream* stream_;
    std::vector<Entry> entries_;  // [kShapes]
    std::uint64_t clock_ = 0;
    bool refused_ = false;
    PassGraphFigures figures_;
};

}  // namespace slipstream
