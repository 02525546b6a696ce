#include "runtime/pass/pass_graphs.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

// Shapes that are remembered, with or without a graph: many, since trees come in many sizes.
constexpr std::size_t kShapes = 96;
// Graphs of a shape that may become unusable before no more are captured for it. A graph becomes unusable when
// workspace moves, which only happens if something larger than ever before is run.
constexpr int kMostOutlived = 4;

}  // namespace

PassGraphs::PassGraphs(Device& device, Stream& stream) : device_(&device), stream_(&stream), entries_(kShapes) {
    CHECK(stream.has_graphs());
}

// Records a pass of `shape` (see the declaration). A new shape takes the entry that was used least recently.
PassGraphs::Entry* PassGraphs::meet(const PassShape& shape) {
    ++clock_;
    const auto there =
        std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.used > 0 && entry.shape == shape; });
    if (there != entries_.end()) {
        // If more shapes than kMostGraphs take turns, each would lose its graph before the graph is launched again.
        const bool often = clock_ - there->used <= kMostGraphs;
        there->used = clock_;
        const bool may_capture = often && !refused_ && there->n_outlived < kMostOutlived;
        return there->graph == nullptr && !may_capture ? nullptr : &*there;
    }
    Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::used);
    drop(oldest);
    oldest.shape = shape;
    oldest.used = clock_;
    oldest.n_outlived = 0;
    return nullptr;
}

bool PassGraphs::capture(Entry& entry, const std::function<void()>& enqueue) {
    try {
        entry.graph = stream_->capture(enqueue);
    } catch (const Error& error) {
        refused_ = true;
        device_->announce(fmt::format("passes are enqueued op by op, without graphs: {}", error.what()));
        return false;
    }
    ++figures_.captured;
    ++figures_.n_graphs;
    figures_.n_nodes += entry.graph->n_nodes();
    bound(entry);
    return true;
}

void PassGraphs::drop(Entry& entry) {
    if (entry.graph == nullptr) return;
    --figures_.n_graphs;
    figures_.n_nodes -= entry.graph->n_nodes();
    entry.graph.reset();
}

void PassGraphs::serves_no_more(Entry& entry) {
    drop(entry);
    if (++entry.n_outlived == kMostOutlived)
        device_->announce(fmt::format("passes of {} tokens are enqueued op by op: {} graphs of theirs served no more",
                                      entry.shape.n_tokens, kMostOutlived));
}

void PassGraphs::bound(const Entry& fresh) {
    while (figures_.n_graphs > static_cast<std::int64_t>(kMostGraphs) || figures_.n_nodes > kMostGraphNodes) {
        Entry* oldest = nullptr;
        for (Entry& entry : entries_)
            if (entry.graph != nullptr && &entry != &fresh && (oldest == nullptr || entry.used < oldest->used))
                oldest = &entry;
        if (oldest == nullptr) return;  // a single graph is kept, whatever its size
        drop(*oldest);
    }
}

}  // namespace slipstream
