// A view: a small resident KV that stands for all of a cache, in which each kv head of each layer keeps the groups of
// tokens that matter most to it. (TriForce's retrieval cache: Sun et al. 2024, arXiv 2404.11912, section 4.1.)
//
// Slots number what is kept, in the order of the text; behind what was chosen stand the rows that the text gained
// since, the cache's own, bit for bit. Keys are stored turned by their true positions, so a node of the view stands
// text_offset() further on than its slot. Who fills it: view_builder.h.
//
// Invariant: nothing of a view is ever written into the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "runtime/cache/device_kv.h"
#include "runtime/cache/kv_nodes.h"
#include "runtime/cache/pass_kv.h"

namespace slipstream {

/// Room of a view.
struct ViewRoom {
    std::int64_t n_slots = 0;    // committed ones, at most
    std::int64_t max_nodes = 1;  // behind them
};

class KvView final : public PassKv {
public:
    /// Takes all memory now, of `n_layers` layers on `device`. Throws OutOfBudget.
    KvView(Device& device, const KvShape& shape, std::int64_t n_layers, const ViewRoom& room);
    /// What the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t device_bytes(const KvShape& shape, std::int64_t n_layers, const ViewRoom& room);

    // As what a pass reads: all of it is resident.
    [[nodiscard]] const KvShape& shape() const override { return store_.shape(); }
    [[nodiscard]] const KvNodes& nodes() const override { return nodes_; }
    [[nodiscard]] std::int64_t text_offset() const override { return n_text_ - nodes_.n_committed(); }
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override { return store_.chunks(layer); }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const override { return store_.scratch_k(layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const override { return store_.scratch_v(layer); }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t /*layer*/) const override { return store_.n_chunks(); }
    [[nodiscard]] HostKv* host() override { return nullptr; }

    /// Positions of the text that it stands for; 0: it stands for none, and no pass may read it.
    [[nodiscard]] std::int64_t n_text() const { return n_text_; }
    [[nodiscard]] std::int64_t n_slots() const { return nodes_.n_committed(); }
    [[nodiscard]] std::int64_t n_layers() const { return store_.n_layers(); }
    NodeId add_node(NodeId parent) { return nodes_.add(parent); }
    void forget() { nodes_.forget(); }

    /// Its first `n_slots` slots are written, or will be by work that is enqueued on `writer`: they stand for `n_text`
    /// positions, the last `n_recent` of which follow one another. Drops all nodes.
    void fill(Stream& writer, std::int64_t n_slots, std::int64_t n_text, std::int64_t n_recent);
    /// The text gained rows, which `path` names in the scratch of `cache`; they are copied. Where there is no room for
    /// them the view stands for nothing any more. Drops all nodes.
    void append(ExecRef exec, const DeviceKv& cache, std::span<const NodeId> path);
    /// The text was cut to `n_text` positions: where it ends among the recent ones the view is cut, too, else it stands
    /// for nothing any more.
    void truncate(std::int64_t n_text);
    void invalidate();
    /// `reader` waits for what was written.
    void await(Stream& reader) const;

private:
    std::int64_t n_slots_;  // at most
    KvNodes nodes_;
    DeviceKv store_;
    std::unique_ptr<Event> written_;
    std::int64_t n_text_ = 0;
    std::int64_t recent_begin_ = 0;  // position of the text from which on nothing is left out
};

}  // namespace slipstream
