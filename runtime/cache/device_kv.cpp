#include "runtime/cache/device_kv.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

DeviceKv::DeviceKv(Device& device, const KvShape& shape, std::int64_t n_chunks, std::int64_t max_nodes,
                   std::span<const std::int64_t> resident_chunks)
    : shape_(shape),
      n_chunks_(n_chunks),
      max_nodes_(max_nodes),
      resident_(std::vector<std::int64_t>(resident_chunks.begin(), resident_chunks.end())),
      chunks_(resident_chunks.size() * static_cast<std::size_t>(n_chunks), nullptr),
      held_(kTailChunks, -1) {
    take_resident(device);
    scratch_ = device.allocate(2 * n_layers() * max_nodes * shape.scratch_row_bytes(), MemoryTag::Kv, "the KV scratch");
    std::int64_t n_streaming = 0;
    for (const std::int64_t resident : resident_) tail_of_.push_back(resident < n_chunks_ ? n_streaming++ : -1);
    if (n_streaming > 0)
        tail_ =
            device.allocate(n_streaming * kTailChunks * shape.chunk_bytes(), MemoryTag::Kv, "the tail of the KV cache");
}

std::size_t DeviceKv::bytes(const KvShape& shape, std::int64_t n_chunks, std::int64_t max_nodes,
                            std::span<const std::int64_t> resident_chunks) {
    std::size_t bytes = 2 * resident_chunks.size() * static_cast<std::size_t>(max_nodes) * shape.scratch_row_bytes();
    for (const std::int64_t resident : resident_chunks)
        bytes += (resident + (resident < n_chunks ? kTailChunks : 0)) * shape.chunk_bytes();
    return bytes;
}

void DeviceKv::take_resident(Device& device) {
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        for (std::int64_t first = 0; first < resident_[layer]; first += kChunksPerExtent) {
            const std::int64_t n = std::min(kChunksPerExtent, resident_[layer] - first);
            extents_.push_back(device.allocate(n * shape_.chunk_bytes(), MemoryTag::Kv, "the KV cache"));
            for (std::int64_t i = 0; i < n; ++i)
                chunks_[layer * n_chunks_ + first + i] = extents_.back().data() + i * shape_.chunk_bytes();
        }
    }
}

void DeviceKv::commit(ExecRef exec, const DeviceKv& from, std::span<const NodeId> rows, std::int64_t first_slot) const {
    kv_commit(exec, {.shape = shape_,
                     .scratch_k = from.scratch_k(0),
                     .scratch_v = from.scratch_v(0),
                     .scratch_rows = scratch_rows(rows),
                     .n_rows = std::ssize(rows),
                     .first_position = first_slot,
                     .chunks = chunks(0),
                     .n_layers = n_layers(),
                     .layer_bytes = static_cast<std::size_t>(from.scratch_k(1) - from.scratch_k(0)),
                     .layer_chunks = n_chunks_});
}

std::byte* DeviceKv::tail_chunk(std::int64_t layer, std::int64_t chunk) const {
    const std::int64_t slot = tail_of_[layer] * kTailChunks + chunk % kTailChunks;
    return tail_.data() + slot * shape_.chunk_bytes();
}

// Enters the tail address of `chunk` in the table, or removes it, for all layers in which the chunk streams.
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
