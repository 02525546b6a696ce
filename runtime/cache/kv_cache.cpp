#include "runtime/cache/kv_cache.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

std::int64_t chunks_of(std::int64_t context_tokens) {
    return ceil_div(context_tokens, kChunkTokens);
}

// Resident chunks of a layer: all where nothing is said.
std::int64_t resident_of(std::span<const std::int64_t> resident_chunks, std::int64_t layer, std::int64_t n_chunks) {
    return resident_chunks.empty() ? n_chunks : std::min(resident_chunks[layer], n_chunks);
}

}  // namespace

KvCache::KvCache(Device& device, const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
                 std::int64_t max_nodes, const KvPlacement& placement)
    : shape_(shape),
      n_layers_(n_layers),
      context_tokens_(context_tokens),
      n_chunks_(chunks_of(context_tokens)),
      max_nodes_(max_nodes) {
    CHECK(n_layers > 0 && context_tokens > 0 && max_nodes > 0);
    CHECK(placement.resident_chunks.empty() || std::ssize(placement.resident_chunks) == n_layers);
    bool any_streams = false;
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        resident_.push_back(resident_of(placement.resident_chunks, layer, n_chunks_));
        CHECK(resident_.back() >= 0);
        any_streams = any_streams || streams(layer);
    }
    chunks_.assign(static_cast<std::size_t>(n_layers * n_chunks_), nullptr);
    take_resident(device);
    scratch_ = device.allocate(static_cast<std::size_t>(2 * n_layers * max_nodes) * shape.scratch_row_bytes(),
                               MemoryTag::Kv, "the KV scratch");
    parents_.reserve(static_cast<std::size_t>(max_nodes));
    positions_.reserve(static_cast<std::size_t>(max_nodes));
    if (any_streams) {
        CHECK(placement.arena != nullptr);
        take_streaming(device, *placement.arena);
    }
}

KvCache::~KvCache() {
    if (!copy_out_) return;
    try {
        copy_out_->synchronize();
    } catch (...) {  // a failed flush was, or would have been, told by the pass that reads it
    }
}

std::size_t KvCache::device_bytes(const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
                                  std::int64_t max_nodes, std::span<const std::int64_t> resident_chunks) {
    const std::int64_t n_chunks = chunks_of(context_tokens);
    std::size_t bytes = static_cast<std::size_t>(2 * n_layers * max_nodes) * shape.scratch_row_bytes();
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        const std::int64_t resident = resident_of(resident_chunks, layer, n_chunks);
        const std::int64_t tail = resident < n_chunks ? kTailChunks : 0;
        bytes += static_cast<std::size_t>(resident + tail) * shape.chunk_bytes();
    }
    return bytes;
}

void KvCache::take_resident(Device& device) {
    for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
        for (std::int64_t first = 0; first < resident_chunks(layer); first += kChunksPerExtent) {
            const std::int64_t n = std::min(kChunksPerExtent, resident_chunks(layer) - first);
            extents_.push_back(
                device.allocate(static_cast<std::size_t>(n) * shape_.chunk_bytes(), MemoryTag::Kv, "the KV cache"));
            for (std::int64_t i = 0; i < n; ++i)
                set_chunk(layer, first + i,
                          extents_.back().data() + static_cast<std::size_t>(i) * shape_.chunk_bytes());
        }
    }
}

void KvCache::take_streaming(Device& device, PinnedArena& arena) {
    std::int64_t n_streaming = 0;
    std::int64_t n_host_extents = 0;
    std::int64_t most_chunks = 0;  // that stream of a layer
    for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
        tail_index_.push_back(n_streaming);
        first_extent_.push_back(n_host_extents);
        if (!streams(layer)) continue;
        ++n_streaming;
        n_host_extents += ceil_div(n_chunks_ - resident_chunks(layer), kChunksPerExtent);
        most_chunks = std::max(most_chunks, n_chunks_ - resident_chunks(layer));
    }
    const std::size_t extent_bytes =
        static_cast<std::size_t>(std::min(kChunksPerExtent, most_chunks)) * shape_.chunk_bytes();
    const std::size_t left = arena.limit_bytes() - arena.used_bytes();
    if (static_cast<std::size_t>(n_host_extents) > left / extent_bytes)
        throw OutOfBudget(fmt::format(
            "the KV cache of {} tokens needs {} bytes of host memory, {} are left of {}; ask for a shorter "
            "--ctx, a smaller --kv-type, or give more by --host-memory",
            context_tokens_, static_cast<std::size_t>(n_host_extents) * extent_bytes, left, arena.limit_bytes()));
    tail_ = device.allocate(static_cast<std::size_t>(n_streaming * kTailChunks) * shape_.chunk_bytes(), MemoryTag::Kv,
                            "the tail of the KV cache");
    slab_.emplace(arena, extent_bytes, n_host_extents, "the KV cache");
    host_extents_.assign(static_cast<std::size_t>(n_host_extents), nullptr);
    slot_chunk_.assign(static_cast<std::size_t>(kTailChunks), -1);
    flush_use_.assign(static_cast<std::size_t>(n_chunks_), 0);
    copy_out_ = device.make_stream(StreamKind::CopyOut);
    written_ = device.make_event();
    flushed_ = device.make_event();
}

NodeId KvCache::add_node(NodeId parent) {
    CHECK(parent >= kCommittedTip && parent < n_nodes() && n_nodes() < max_nodes_, "node below {}, {} of {} in use",
          parent, n_nodes(), max_nodes_);
    const std::int64_t at = parent == kCommittedTip ? n_committed_ : position(parent) + 1;
    CHECK(at < context_tokens_, "position {} of a context of {}", at, context_tokens_);
    parents_.push_back(parent);
    positions_.push_back(at);
    return static_cast<NodeId>(n_nodes() - 1);
}

// A chunk at a time, so that a slot is flushed before another chunk wants it.
void KvCache::commit(ExecRef exec, std::span<const NodeId> path) {
    NodeId above = kCommittedTip;
    for (const NodeId node : path) {
        CHECK(node >= 0 && node < n_nodes() && parent(node) == above, "node {} does not follow {}", node, above);
        above = node;
    }
    while (!path.empty()) {
        const std::int64_t chunk = n_committed_ / kChunkTokens;
        const auto room =
            static_cast<std::size_t>(streams() ? (chunk + 1) * kChunkTokens - n_committed_ : std::ssize(path));
        const std::span<const NodeId> rows = path.first(std::min(room, path.size()));
        if (streams()) open_slot(exec, chunk);
        for (std::int64_t layer = 0; layer < n_layers_; ++layer)
            kv_commit(exec, {.shape = shape_,
                             .scratch_k = scratch_k(layer),
                             .scratch_v = scratch_v(layer),
                             .scratch_rows = rows.data(),
                             .n_rows = std::ssize(rows),
                             .first_position = n_committed_,
                             .chunks = chunks(layer)});
        n_committed_ += std::ssize(rows);
        if (streams() && n_committed_ % kChunkTokens == 0) flush_chunk(exec, chunk);
        path = path.subspan(rows.size());
    }
    forget();
}

void KvCache::forget() {
    parents_.clear();
    positions_.clear();
}

void KvCache::truncate(ExecRef exec, std::int64_t n_tokens) {
    CHECK(n_tokens >= 0 && n_tokens <= n_committed_, "{} of {} positions", n_tokens, n_committed_);
    forget();
    if (n_tokens == n_committed_) return;
    n_committed_ = n_tokens;
    prompt_rows_ = std::min(prompt_rows_, n_tokens);
    if (!streams()) return;
    if (programs_ != nullptr) programs_->invalidate(exec.stream);
    const std::int64_t n_full = n_tokens / kChunkTokens;
    const bool flushed_before = n_full < host_chunks_;
    host_chunks_ = std::min(host_chunks_, n_full);
    // A slot that is left without a row is opened anew, for a pass may have read its chunk from the host and left none
    // in the table.
    const bool ends_full = n_tokens % kChunkTokens == 0;
    for (std::int64_t& chunk : slot_chunk_)
        if (chunk > n_full || (chunk == n_full && ends_full)) chunk = -1;
    if (flushed_before && !ends_full) fetch_tail(exec, n_full);
}

void KvCache::truncate(std::int64_t n_tokens) {
    CHECK(!streams() && n_tokens >= 0 && n_tokens <= n_committed_, "{} of {} positions", n_tokens, n_committed_);
    n_committed_ = n_tokens;
    prompt_rows_ = std::min(prompt_rows_, n_tokens);
    forget();
}

void KvCache::read_chunk(ExecRef exec, std::int64_t layer, std::int64_t chunk, std::byte* out) {
    CHECK(chunk * kChunkTokens < n_committed_, "chunk {} of {} positions", chunk, n_committed_);
    if (streams() && chunk >= resident_chunks(layer) && chunk < host_chunks_) {
        exec.stream.wait(*flushed_, flush_use(chunk));
        exec.stream.synchronize();
        std::copy_n(host_chunk(layer, chunk), shape_.chunk_bytes(), out);
        return;
    }
    exec.stream.copy(out, chunks(layer)[chunk], shape_.chunk_bytes());
    exec.stream.synchronize();
}

void KvCache::restore(ExecRef exec, std::int64_t n_tokens,
                      const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    CHECK(n_committed_ == 0 && n_nodes() == 0 && n_tokens <= context_tokens_, "{} positions", n_tokens);
    std::vector<std::byte> staging(shape_.chunk_bytes());
    const std::int64_t n_full = n_tokens / kChunkTokens;
    for (std::int64_t chunk = 0; chunk < chunks_of(n_tokens); ++chunk) {
        if (streams() && chunk == n_full) open_slot(exec, chunk);
        for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
            if (chunk >= resident_chunks(layer) && chunk < n_full) {
                read(layer, chunk, host_chunk(layer, chunk));
                continue;
            }
            read(layer, chunk, staging.data());
            exec.stream.copy(chunks(layer)[chunk], staging.data(), staging.size());
            exec.stream.synchronize();
        }
    }
    n_committed_ = n_tokens;
    if (!streams()) return;
    if (programs_ != nullptr) programs_->invalidate(exec.stream);  // one made ahead knows nothing of these chunks
    const std::uint64_t use = copy_out_->record(*flushed_);
    for (std::int64_t chunk = 0; chunk < n_full; ++chunk) flush_use_[chunk] = use;
    host_chunks_ = n_full;
}

std::byte* KvCache::tail_slot(std::int64_t layer, std::int64_t chunk) const {
    const std::int64_t slot = tail_index_[layer] * kTailChunks + chunk % kTailChunks;
    return tail_.data() + static_cast<std::size_t>(slot) * shape_.chunk_bytes();
}

std::byte* KvCache::host_chunk(std::int64_t layer, std::int64_t chunk) {
    const std::int64_t place = chunk - resident_chunks(layer);
    CHECK(place >= 0 && chunk < n_chunks_, "chunk {} of layer {} on the host", chunk, layer);
    std::byte*& extent = host_extents_[first_extent_[layer] + place / kChunksPerExtent];
    if (extent == nullptr) extent = slab_->take();
    return extent + static_cast<std::size_t>(place % kChunksPerExtent) * shape_.chunk_bytes();
}

std::int64_t KvCache::snapshot() {
    frozen_ = host_chunks_;
    return host_chunks_;
}

// Makes the slot of `chunk` ready to be written in every streaming layer.
void KvCache::open_slot(ExecRef exec, std::int64_t chunk) {
    std::int64_t& held = slot_chunk_[chunk % kTailChunks];
    if (held == chunk) return;
    if (held >= 0) {
        // A program made ahead may still count on the slot.
        if (frozen_ && *frozen_ <= held && programs_ != nullptr) programs_->invalidate(exec.stream);
        if (flush_use(held) > 0) exec.stream.wait(*flushed_, flush_use(held));
    } else if (flushed_->recorded() > 0) {
        exec.stream.wait(*flushed_, flushed_->recorded());  // what lay there last may still be on its way out
    }
    for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
        if (chunk < resident_chunks(layer)) continue;
        if (held >= resident_chunks(layer)) set_chunk(layer, held, nullptr);
        set_chunk(layer, chunk, tail_slot(layer, chunk));
    }
    held = chunk;
}

// A chunk that is full goes to the host in every layer where it streams.
void KvCache::flush_chunk(ExecRef exec, std::int64_t chunk) {
    flush_use_[chunk] = flush(exec, [&](Stream& out) {
        for (std::int64_t layer = 0; layer < n_layers_; ++layer)
            if (chunk >= resident_chunks(layer))
                out.copy(host_chunk(layer, chunk), tail_slot(layer, chunk), shape_.chunk_bytes());
    });
    host_chunks_ = chunk + 1;
}

// A chunk that the host holds comes back into its slot, to be written on.
void KvCache::fetch_tail(ExecRef exec, std::int64_t chunk) {
    std::int64_t& held = slot_chunk_[chunk % kTailChunks];
    const bool is_there = held == chunk;  // only the table has forgotten it
    held = -1;
    open_slot(exec, chunk);
    if (is_there) return;
    exec.stream.wait(*flushed_, flush_use(chunk));
    for (std::int64_t layer = 0; layer < n_layers_; ++layer)
        if (chunk >= resident_chunks(layer))
            exec.stream.copy(tail_slot(layer, chunk), host_chunk(layer, chunk), shape_.chunk_bytes());
}

void KvCache::reserve(std::int64_t n_tokens) {
    CHECK(n_nodes() == 0 && n_tokens >= n_committed_ && n_tokens <= context_tokens_, "{} positions behind {}", n_tokens,
          n_committed_);
    n_committed_ = n_tokens;
}

void KvCache::publish(std::uint64_t flush_use) {
    if (!streams()) return;
    CHECK(n_committed_ % kChunkTokens == 0, "a prompt to position {}", n_committed_);
    const std::int64_t n_full = n_committed_ / kChunkTokens;
    for (std::int64_t chunk = host_chunks_; chunk < n_full; ++chunk) flush_use_[chunk] = flush_use;
    host_chunks_ = n_full;
    slot_chunk_.assign(slot_chunk_.size(), -1);
}

void KvCache::rollback(std::int64_t n_tokens) {
    forget();
    n_committed_ = n_tokens;
    prompt_rows_ = std::min(prompt_rows_, n_tokens);
}

}  // namespace slipstream
