// Graphs of the passes that a Forward runs again and again: decoding, small trees, the steps of a draft model, where
// all is resident. Passes that differ in nothing but contents share a graph; the host then enqueues a pass by a few
// calls instead of some fifteen a layer.
//
// A pass is met plainly first, captured the second time, launched from then on: what comes once costs no graph, and
// kernels have been loaded when they are captured. Graphs are bounded in number and in nodes; the one that was launched
// least recently goes. Where the device refuses a capture it says so once, and passes are enqueued each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace slipstream {

/// What a pass's enqueued work follows from, but for contents of arrays.
struct PassShape {
    std::int64_t n_tokens = 0;
    std::int64_t n_logit_rows = 0;  // of the last tokens
    std::int64_t n_chunks = 0;      // graph_chunks() of the pass's end
    std::int64_t path_rows = 0;     // graph_path_rows() of its longest path
    const void* paths = nullptr;    // where graphs read them on the host
    const void* scratch = nullptr;  // of its KV, on the device
    const void* chunks = nullptr;   // the table of its KV, on the host
    std::int64_t max_nodes = 0;     // of its KV

    friend bool operator==(const PassShape&, const PassShape&) = default;
};

/// More tokens keep a card busy for longer than it takes to enqueue their pass, and their arrays grow by their square.
inline constexpr std::int64_t kMostGraphTokens = 64;
/// Of one Forward. A driver takes some hundred bytes of the card for a node (estimated), outside of any budget: so at
/// most a few MiB.
inline constexpr std::size_t kMostGraphs = 24;
inline constexpr std::int64_t kMostGraphNodes = 16384;

struct PassGraphFigures {
    std::int64_t captured = 0;
    std::int64_t launched = 0;
    std::int64_t n_graphs = 0;  // now
    std::int64_t n_nodes = 0;   // of them
};

class PassGraphs {
public:
    /// On a stream that has graphs; both outlive this.
    PassGraphs(Device& device, Stream& stream);
    PassGraphs(const PassGraphs&) = delete;
    PassGraphs& operator=(const PassGraphs&) = delete;

    /// Enqueues a pass as a graph; false where `enqueue` is to be called instead. Allocates nothing where a graph is
    /// there. Throws CudaError where a launch fails.
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
        std::uint64_t used = 0;        // 0: nothing is known here
        std::unique_ptr<Graph> graph;  // null: met once, not captured
        int n_outlived = 0;            // graphs that served no more
    };

    [[nodiscard]] Entry* meet(const PassShape& shape);
    [[nodiscard]] bool capture(Entry& entry, const std::function<void()>& enqueue);
    void drop(Entry& entry);
    void serves_no_more(Entry& entry);
    void bound(const Entry& fresh);

    Device* device_;
    Stream* stream_;
    std::vector<Entry> entries_;  // of a fixed number
    std::uint64_t clock_ = 0;
    bool refused_ = false;
    PassGraphFigures figures_;
};

}  // namespace slipstream
