#include "runtime/view/kv_view.h"

#include <algorithm>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/cpu_device.h"

namespace slipstream {

namespace {

// Time of a slot in pages over that of an F16 row, on CPUs: means over passes of one and of four tokens, as draft
// passes are, and two shapes of heads (kernels/NOTES.md, "View pages"). Of floats also over two instruction forms.
constexpr double kCpuPageTime = 0.87;
constexpr double kVnniPageTime = 0.53;

// Returns the slots of a view together with those of its nodes: nodes have slots too, although their rows are in
// scratch.
std::int64_t all_slots(const ViewRoom& room) {
    return room.n_slots + room.max_nodes;
}

std::int64_t chunks_of(const ViewRoom& room) {
    return ceil_div(all_slots(room), kChunkTokens);
}

std::vector<std::int64_t> resident(std::span<const KvLayout> layouts, const ViewRoom& room) {
    return std::vector<std::int64_t>(layouts.size(), chunks_of(room));
}

// Returns the bytes of the pool. Pages of a layer begin at a multiple of their size, so a layer whose pages have
// another size than the one before may leave a gap of up to a page.
std::size_t pool_bytes_of(std::span<const KvLayout> layouts, const ViewRoom& room) {
    std::size_t bytes = 0;
    for (std::size_t layer = 0; layer < room.page_slots.size(); ++layer) {
        const std::size_t page = view_page_bytes(layouts[layer].head_dim);
        const auto n_pages = static_cast<std::size_t>(room.page_slots[layer] / kPageSlots * layouts[layer].n_kv_heads);
        const bool varies = layer > 0 && layouts[layer].head_dim != layouts[layer - 1].head_dim;
        bytes += (n_pages + (varies ? 1 : 0)) * page;
    }
    return bytes;
}

std::size_t staging_bytes(std::span<const KvLayout> layouts) {
    return static_cast<std::size_t>(KvView::kStagingChunks) * largest_chunk_bytes(layouts);
}

std::size_t range_bytes(std::span<const KvLayout> layouts) {
    std::int64_t n_heads = 0;
    for (const KvLayout& layout : layouts) n_heads += layout.n_kv_heads;
    return static_cast<std::size_t>(n_heads) * sizeof(PageRange);
}

}  // namespace

std::size_t row_bytes_like_page(DeviceKind kind, const KvLayout& layout) {
    if (kind != DeviceKind::Cpu) return view_page_bytes(layout.head_dim);
    const double time = best_cpu_form() >= CpuForm::Avx512Vnni ? kVnniPageTime : kCpuPageTime;
    return static_cast<std::size_t>(time * static_cast<double>(2 * layout.step_bytes()));
}

KvView::KvView(Device& device, std::span<const KvLayout> layouts, const ViewRoom& room)
    : kind_(device.kind()),
      n_slots_(room.n_slots),
      nodes_(all_slots(room), room.max_nodes),
      store_(device, layouts, chunks_of(room), room.max_nodes, resident(layouts, room)),
      page_slots_(room.page_slots),
      written_(device.make_event()) {
    CHECK(page_slots_.empty() || page_slots_.size() == layouts.size(), "pages of {} layers", page_slots_.size());
    const std::size_t pool = pool_bytes_of(layouts, room);
    if (pool == 0) return;
    pages_ = device.allocate(pool, MemoryTag::Draft, "pages of a view of the KV cache");
    staged_ = device.allocate(staging_bytes(layouts), MemoryTag::Draft, "rows that wait for pages of a view");
    device_ranges_ = device.allocate(range_bytes(layouts), MemoryTag::Draft, "ranges of pages of a view");
    first_head_.push_back(0);
    for (const KvLayout& layout : layouts) {
        first_head_.push_back(first_head_.back() + layout.n_kv_heads);
        for (std::int64_t i = 0; i < kStagingChunks; ++i)
            staging_.push_back(staged_.data() + static_cast<std::size_t>(i) * layout.chunk_bytes());
    }
    ranges_.resize(static_cast<std::size_t>(first_head_.back()));
    read_bytes_.resize(layouts.size());
}

std::size_t KvView::device_bytes(std::span<const KvLayout> layouts, const ViewRoom& room) {
    const std::size_t rows = DeviceKv::bytes(layouts, chunks_of(room), room.max_nodes, resident(layouts, room));
    const std::size_t pool = pool_bytes_of(layouts, room);
    return pool == 0 ? rows : rows + pool + staging_bytes(layouts) + range_bytes(layouts);
}

LayerPages KvView::pages(std::int64_t layer) const {
    if (!has_pages()) return {};
    return {.pages = pages_.data(),
            .ranges = reinterpret_cast<const PageRange*>(device_ranges_.data()) + first_head_[layer],
            .most_slots = page_slots_[layer],
            .n_bytes = read_bytes_[layer]};
}

void KvView::fill(Stream& writer, std::int64_t n_slots, std::int64_t n_text, std::int64_t n_recent,
                  std::span<const PageRange> ranges) {
    CHECK(n_slots > 0 && n_slots <= n_slots_ && n_slots <= n_text && n_recent <= n_slots,
          "{} slots of {} for {} positions, {} recent", n_slots, n_slots_, n_text, n_recent);
    CHECK(ranges.size() == ranges_.size(), "{} ranges of pages for {} heads", ranges.size(), ranges_.size());
    if (!ranges.empty()) {
        std::ranges::copy(ranges, ranges_.begin());
        writer.copy(device_ranges_.data(), ranges_.data(), device_ranges_.size_bytes());
        count_pages();
    }
    nodes_.forget();
    nodes_.set_committed(n_slots);
    n_text_ = n_text;
    recent_begin_ = n_text - n_recent;
    static_cast<void>(writer.record(*written_));
}

// Counts the pages in ranges_.
void KvView::count_pages() {
    std::size_t row = 0;
    std::size_t pages = 0;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        std::size_t n_pages = 0;
        for (std::int64_t head = first_head_[layer]; head < first_head_[layer + 1]; ++head)
            n_pages += static_cast<std::size_t>(ceil_div(std::int64_t{ranges_[head].n_slots}, kPageSlots));
        read_bytes_[layer] = n_pages * page_bytes(layer);
        row += 2 * layout(layer).scratch_row_bytes();
        pages += n_pages * row_bytes_like_page(kind_, layout(layer));
    }
    page_rows_ = static_cast<std::int64_t>(pages / row);
}

void KvView::append(ExecRef exec, const DeviceKv& cache, std::span<const NodeId> path) {
    if (n_text_ == 0 || path.empty()) return;
    nodes_.forget();
    const std::int64_t first = nodes_.n_committed();
    if (first + std::ssize(path) > n_slots_) return invalidate();
    store_.commit(exec, cache, path, first);
    nodes_.set_committed(first + std::ssize(path));
    n_text_ += std::ssize(path);
    static_cast<void>(exec.stream.record(*written_));
}

void KvView::truncate(std::int64_t n_text) {
    nodes_.forget();
    if (n_text >= n_text_) return;
    if (n_text <= recent_begin_) return invalidate();
    nodes_.set_committed(nodes_.n_committed() - (n_text_ - n_text));
    n_text_ = n_text;
}

void KvView::invalidate() {
    nodes_.forget();
    nodes_.set_committed(0);
    n_text_ = 0;
}

void KvView::await(Stream& reader) const {
    if (written_->recorded() > 0) reader.wait(*written_, written_->recorded());
}

}  // namespace slipstream
