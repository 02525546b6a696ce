#include "runtime/cache/device_kv.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "runtime/cache/kv_ring.h"

namespace slipstream {

namespace {

// Alignment, in bytes, of a layer's scratch rows if the layer before has another layout: kernels read rows by vectors.
constexpr std::size_t kScratchAlign = 64;

// Appends the offset of each layer's scratch rows to `begin`, if it is not null; returns the end of the last layer's.
std::size_t place_scratch(std::span<const KvLayout> layouts, std::int64_t max_nodes, std::vector<std::size_t>* begin) {
    std::size_t end = 0;
    for (std::size_t layer = 0; layer < layouts.size(); ++layer) {
        if (layer > 0 && layouts[layer] != layouts[layer - 1]) end = round_up(end, kScratchAlign);
        if (begin != nullptr) begin->push_back(end);
        end += 2 * static_cast<std::size_t>(max_nodes) * layouts[layer].scratch_row_bytes();
    }
    return end;
}

}  // namespace

std::size_t largest_chunk_bytes(std::span<const KvLayout> layouts) {
    std::size_t most = 0;
    for (const KvLayout& layout : layouts) most = std::max(most, layout.chunk_bytes());
    return most;
}

DeviceKv::DeviceKv(Device& device, std::span<const KvLayout> layouts, std::int64_t n_chunks, std::int64_t max_nodes,
                   std::span<const std::int64_t> resident_chunks, std::span<const std::int64_t> windows)
    : layouts_(layouts.begin(), layouts.end()),
      n_chunks_(n_chunks),
      max_nodes_(max_nodes),
      resident_(std::vector<std::int64_t>(resident_chunks.begin(), resident_chunks.end())),
      chunks_(resident_chunks.size() * static_cast<std::size_t>(n_chunks), nullptr),
      held_(kTailChunks, -1) {
    CHECK(layouts.size() == resident_chunks.size() && (windows.empty() || windows.size() == layouts.size()),
          "{} layouts, {} layers, {} windows", layouts.size(), resident_chunks.size(), windows.size());
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        kept_.push_back(slipstream::kept_chunks(window_of(windows, layer), n_chunks));
        CHECK(!is_ring(layer) || resident_[layer] == 0 || resident_[layer] == n_chunks, "{} chunks of a ring of {}",
              resident_[layer], kept_[layer]);
    }
    take_resident(device);
    scratch_ = device.allocate(place_scratch(layouts_, max_nodes, &scratch_begin_), MemoryTag::Kv, "the KV scratch");
    std::size_t tail_bytes = 0;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        tail_begin_.push_back(tail_bytes);
        if (resident_[layer] < n_chunks_) tail_bytes += kTailChunks * layout(layer).chunk_bytes();
    }
    if (tail_bytes > 0) tail_ = device.allocate(tail_bytes, MemoryTag::Kv, "the tail of the KV cache");
}

std::size_t DeviceKv::bytes(std::span<const KvLayout> layouts, std::int64_t n_chunks, std::int64_t max_nodes,
                            std::span<const std::int64_t> resident_chunks, std::span<const std::int64_t> windows) {
    CHECK(layouts.size() == resident_chunks.size() && (windows.empty() || windows.size() == layouts.size()),
          "{} layouts, {} layers, {} windows", layouts.size(), resident_chunks.size(), windows.size());
    std::size_t bytes = place_scratch(layouts, max_nodes, nullptr);
    for (std::size_t layer = 0; layer < layouts.size(); ++layer) {
        const std::int64_t resident = resident_chunks[layer];
        const std::int64_t kept =
            slipstream::kept_chunks(window_of(windows, static_cast<std::int64_t>(layer)), n_chunks);
        bytes += (std::min(resident, kept) + (resident < n_chunks ? kTailChunks : 0)) * layouts[layer].chunk_bytes();
    }
    return bytes;
}

std::size_t DeviceKv::largest_streamed_chunk() const {
    std::size_t most = 0;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        if (resident_[layer] < n_chunks_) most = std::max(most, layout(layer).chunk_bytes());
    return most;
}

std::size_t DeviceKv::smallest_streamed_chunk() const {
    std::size_t least = largest_streamed_chunk();
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        if (resident_[layer] < n_chunks_) least = std::min(least, layout(layer).chunk_bytes());
    return least;
}

void DeviceKv::take_resident(Device& device) {
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        const std::size_t chunk_bytes = layout(layer).chunk_bytes();
        const std::int64_t n_places = std::min(resident_[layer], kept_[layer]);
        if (chunk_bytes == 0) continue;  // a recurrent layer
        std::byte** const table = chunks_.data() + layer * n_chunks_;
        for (std::int64_t first = 0; first < n_places; first += kChunksPerExtent) {
            const std::int64_t n = std::min(kChunksPerExtent, n_places - first);
            extents_.push_back(device.allocate(n * chunk_bytes, MemoryTag::Kv, "the KV cache"));
            for (std::int64_t i = 0; i < n; ++i) table[first + i] = extents_.back().data() + i * chunk_bytes;
        }
        for (std::int64_t chunk = n_places; chunk < resident_[layer]; ++chunk) table[chunk] = table[chunk - n_places];
    }
}

// Enqueues one copy for each run of consecutive layers with equal layouts, whose scratch rows are at equal distances.
void DeviceKv::commit(ExecRef exec, const DeviceKv& from, std::span<const NodeId> rows, std::int64_t first_slot) const {
    CHECK(std::ranges::equal(layouts_, from.layouts_), "rows of layers with other layouts");
    for (std::int64_t first = 0, end = 0; first < n_layers(); first = end) {
        for (end = first + 1; end < n_layers() && layout(end) == layout(first);) ++end;
        if (!layout(first).state.empty()) continue;
        kv_commit(exec, {.shape = layout(first),
                         .scratch_k = from.scratch_k(first),
                         .scratch_v = from.scratch_v(first),
                         .scratch_rows = scratch_rows(rows),
                         .n_rows = std::ssize(rows),
                         .first_position = first_slot,
                         .chunks = chunks(first),
                         .n_layers = end - first,
                         .layer_bytes = 2 * from.plane_bytes(first),
                         .layer_chunks = n_chunks_});
    }
}

std::byte* DeviceKv::tail_chunk(std::int64_t layer, std::int64_t chunk) const {
    return tail_.data() + tail_begin_[layer] + (chunk % kTailChunks) * layout(layer).chunk_bytes();
}

// Enters the tail address of the KV chunk `chunk` in the table, or removes it, for all layers in which it streams.
void DeviceKv::put(std::int64_t chunk, bool is_there) {
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        if (chunk >= resident_[layer])
            chunks_[layer * n_chunks_ + chunk] = is_there ? tail_chunk(layer, chunk) : nullptr;
}

void DeviceKv::hold(std::int64_t chunk) {
    std::int64_t& held = held_[chunk % kTailChunks];
    if (held >= 0) put(held, false);
    held = chunk;
    put(chunk, true);
}

void DeviceKv::release_from(std::int64_t chunk) {
    for (std::int64_t& held : held_) {
        if (held < chunk) continue;
        put(held, false);
        held = -1;
    }
}

}  // namespace slipstream
