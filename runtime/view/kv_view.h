// A KV view: a small, resident KV that a draft pass reads instead of the whole cache. Each kv head of each layer keeps
// the slot groups of tokens that matter most to it. (TriForce's retrieval cache: Sun et al. 2024, arXiv 2404.11912,
// section 4.1.)
//
// Slots number the kept tokens in the order of the sequence: first the chosen ones, then the rows that the sequence
// gained since, which are the cache's rows bit for bit. Keys are stored rotated by their true positions, so the
// position of a node of the view is its slot plus text_offset(). ViewBuilder fills it (view_builder.h).
//
// A view may keep the older of its tokens in view pages of 4 bits, which take about a quarter of the bytes
// (kernels/view_pages.h): then slots are only the first tokens (sinks) and the last, and attention folds the pages
// before the slots. Each head has consecutive pages in one pool, full but for the last.
//
// Invariant: nothing of a view is ever written to the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/cache/device_kv.h"
#include "runtime/cache/kv_nodes.h"
#include "runtime/cache/pass_kv.h"

namespace slipstream {

/// Sizes of a view, in tokens.
struct ViewRoom {
    std::int64_t n_slots = 0;    // most committed slots, one for each kept token
    std::int64_t max_nodes = 1;  // most nodes after the committed slots
    // [n_layers]: slots in view pages for each kv head of the layer, multiples of kPageSlots; empty: there are no pages
    std::vector<std::int64_t> page_slots{};
};

/// Returns the bytes of rows of `layout` that attention folds in about the time of one view page of one kv head.
///   CPU  Time follows arithmetic rather than bytes: with VNNI 0.38 to 0.73 of as many F16 rows, with other
///        instructions 0.59 to 1.05 (kernels/NOTES.md, "View pages"). It is that of the machine's best instruction
///        form, also if a device was made with another. Rows of other types were not measured beside pages.
///   GPU  As many bytes as the page has. Not measured.
[[nodiscard]] std::size_t row_bytes_like_page(DeviceKind kind, const KvLayout& layout);

/// The KV view of one cache on one device. All its functions are called by one thread.
class KvView final : public PassKv {
public:
    /// Allocates all memory now, for layers with `layouts` [n_layers] on `device`. `device` must outlive the view.
    /// Throws OutOfBudget.
    KvView(Device& device, std::span<const KvLayout> layouts, const ViewRoom& room);
    /// Returns the bytes that the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t device_bytes(std::span<const KvLayout> layouts, const ViewRoom& room);

    // PassKv: what a pass over the view reads. All of it is resident.
    [[nodiscard]] const KvLayout& layout(std::int64_t layer) const override { return store_.layout(layer); }
    [[nodiscard]] const KvNodes& nodes() const override { return nodes_; }
    [[nodiscard]] std::int64_t text_offset() const override { return n_text_ - nodes_.n_committed(); }
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override { return store_.chunks(layer); }
    [[nodiscard]] LayerPages pages(std::int64_t layer) const override;
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const override { return store_.scratch_k(layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const override { return store_.scratch_v(layer); }
    [[nodiscard]] std::int64_t resident_chunks(std::int64_t /*layer*/) const override { return store_.n_chunks(); }
    [[nodiscard]] RecurrentStates* states() override { return nullptr; }
    [[nodiscard]] HostKv* host() override { return nullptr; }

    /// Returns the length of the sequence that the view is valid for; 0: it is invalid, and no pass may read it.
    [[nodiscard]] std::int64_t n_text() const { return n_text_; }
    /// Returns the number of committed slots.
    [[nodiscard]] std::int64_t n_slots() const { return nodes_.n_committed(); }
    /// Returns how many committed slots a pass would fold in about the time of the slots and pages that it reads.
    [[nodiscard]] std::int64_t n_read() const { return n_slots() + page_rows_; }
    [[nodiscard]] std::int64_t n_layers() const { return store_.n_layers(); }
    /// Returns whether a layer of the view can have pages.
    [[nodiscard]] bool has_pages() const { return pages_.size_bytes() > 0; }
    /// Returns the memory of the pages of all layers and its size. A page of a layer is at a multiple of
    /// page_bytes(layer).
    [[nodiscard]] std::byte* page_pool() const { return pages_.data(); }
    [[nodiscard]] std::size_t pool_bytes() const { return pages_.size_bytes(); }
    [[nodiscard]] std::size_t page_bytes(std::int64_t layer) const { return view_page_bytes(layout(layer).head_dim); }
    /// Returns the slots in pages for which the pool has room for each kv head of the layer.
    [[nodiscard]] std::int64_t page_slots(std::int64_t layer) const { return has_pages() ? page_slots_[layer] : 0; }
    /// Returns the table of kStagingChunks KV chunks, all with the layout of the layer and in the same memory for all
    /// layers: rows wait there until they fill a page.
    [[nodiscard]] std::byte* const* staging(std::int64_t layer) const {
        return staging_.data() + layer * kStagingChunks;
    }
    static constexpr std::int64_t kStagingChunks = 4;
    /// Adds a node for the next pass after `parent`, a node or the committed tip. Returns it.
    NodeId add_node(NodeId parent) { return nodes_.add(parent); }
    /// Drops all nodes.
    void forget() { nodes_.forget(); }

    /// Makes the view valid for a sequence of `n_text` positions. Its first `n_slots` slots are written, or will be by
    /// work that is enqueued on `writer`. The last `n_recent` slots hold the last positions without gaps. `ranges`: the
    /// pages of the kv heads of all layers; empty if the view has no pages. The work of the last call must be complete.
    /// Drops all nodes.
    void fill(Stream& writer, std::int64_t n_slots, std::int64_t n_text, std::int64_t n_recent,
              std::span<const PageRange> ranges = {});
    /// Copies the rows that the sequence gained: `path` names them in the scratch of `cache`. If they do not fit, the
    /// view becomes invalid. Drops all nodes. Does nothing if the view is invalid.
    void append(ExecRef exec, const DeviceKv& cache, std::span<const NodeId> path);
    /// Follows a cut of the sequence to `n_text` positions: cuts the view if the new end is among the recent positions,
    /// otherwise invalidates it.
    void truncate(std::int64_t n_text);
    /// Makes the view invalid. Drops all nodes.
    void invalidate();
    /// Makes `reader` wait for everything that was written to the view.
    void await(Stream& reader) const;

private:
    void count_pages();

    DeviceKind kind_;
    std::int64_t n_slots_;  // most committed slots
    KvNodes nodes_;
    DeviceKv store_;
    std::vector<std::int64_t> page_slots_;  // as ViewRoom::page_slots
    Buffer pages_;                          // empty: there are none
    Buffer staged_;                         // memory of staging()
    std::vector<std::byte*> staging_;       // [n_layers][kStagingChunks]
    std::vector<std::int64_t> first_head_;  // [n_layers + 1]: kv heads of all earlier layers
    std::vector<PageRange> ranges_;         // [kv heads of all layers]
    Buffer device_ranges_;                  // copy of ranges_
    std::vector<std::size_t> read_bytes_;   // [n_layers]: of the pages in ranges_
    std::int64_t page_rows_ = 0;            // slots that a pass would fold in about the time of the pages in ranges_
    // Recorded on the writing stream after each write; await() waits for it.
    std::unique_ptr<Event> written_;
    std::int64_t n_text_ = 0;
    std::int64_t recent_begin_ = 0;  // first position of the sequence from which on the view has every position
};

}  // namespace slipstream
