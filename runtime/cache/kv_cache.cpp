#include "runtime/cache/kv_cache.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "runtime/cache/kv_ring.h"

namespace slipstream {

namespace {

// In tokens: host memory for a KV chunk is requested when a node is so close to the end of that KV chunk. Locking an
// extent of 32 layers takes 0.1 to 0.6 s; where KV streams, 128 tokens take about a second.
constexpr std::int64_t kTokensAhead = 128;

std::int64_t chunks_of(std::int64_t context_tokens) {
    return ceil_div(context_tokens, kChunkTokens);
}

// Returns the number of resident KV chunks of each layer; all if `resident_chunks` is empty. A ring has all or none;
// the KV chunks of a recurrent layer have no bytes.
std::vector<std::int64_t> resident_of(std::span<const std::int64_t> resident_chunks, std::span<const KvLayout> layouts,
                                      std::int64_t n_chunks, std::span<const std::int64_t> windows) {
    const std::int64_t n_layers = std::ssize(layouts);
    CHECK(resident_chunks.empty() || std::ssize(resident_chunks) == n_layers);
    std::vector<std::int64_t> resident(n_layers, n_chunks);
    for (std::size_t layer = 0; layer < resident_chunks.size(); ++layer) {
        CHECK(resident_chunks[layer] >= 0);
        if (!layouts[layer].state.empty()) continue;
        const std::int64_t kept = kept_chunks(window_of(windows, static_cast<std::int64_t>(layer)), n_chunks);
        if (resident_chunks[layer] < kept) resident[layer] = kept < n_chunks ? 0 : resident_chunks[layer];
    }
    return resident;
}

}  // namespace

KvCache::KvCache(Device& device, std::span<const KvLayout> layouts, std::int64_t context_tokens, std::int64_t max_nodes,
                 const KvPlacement& placement)
    : nodes_(context_tokens, max_nodes),
      store_(device, layouts, chunks_of(context_tokens), max_nodes,
             resident_of(placement.resident_chunks, layouts, chunks_of(context_tokens), placement.windows),
             placement.windows),
      windows_(placement.windows),
      first_kept_(layouts.size(), 0),
      versions_(static_cast<std::size_t>(chunks_of(context_tokens)), 1) {
    if (std::ranges::any_of(layouts, [](const KvLayout& layout) { return !layout.state.empty(); })) {
        states_.emplace(device, layouts, placement.max_drafts > 0 ? placement.max_drafts : max_nodes,
                        RecurrentStates::most_checkpoint_bytes(layouts, context_tokens, placement.checkpoint_bytes));
        drafts_.reserve(static_cast<std::size_t>(states_->max_drafts()));
        stays_ = false;
    }
    bool any_streams = false;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        any_streams = any_streams || resident_chunks(layer) < store_.n_chunks();
        stays_ = stays_ && resident_chunks(layer) == store_.n_chunks() && !store_.is_ring(layer);
    }
    if (!any_streams) return;
    CHECK(placement.arena != nullptr);
    host_.emplace(device, *placement.arena, store_);
}

std::size_t KvCache::device_bytes(std::span<const KvLayout> layouts, std::int64_t context_tokens,
                                  std::int64_t max_nodes, std::span<const std::int64_t> resident_chunks,
                                  std::span<const std::int64_t> windows, std::int64_t max_drafts) {
    const std::int64_t n_chunks = chunks_of(context_tokens);
    return DeviceKv::bytes(layouts, n_chunks, max_nodes, resident_of(resident_chunks, layouts, n_chunks, windows),
                           windows) +
           RecurrentStates::bytes(layouts, max_drafts > 0 ? max_drafts : max_nodes);
}

std::int64_t KvCache::positions_after_cut(std::int64_t n_tokens) const {
    if (states_) n_tokens = states_->positions_after_cut(n_tokens);
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        if (first_read_chunk(layer, n_tokens) < first_kept_[layer]) return 0;
    return n_tokens;
}

std::int64_t KvCache::first_read_chunk(std::int64_t layer, std::int64_t position) const {
    return store_.is_ring(layer) ? first_chunk_in_window(window_of(windows_, layer), position) : 0;
}

std::int64_t KvCache::first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const {
    return first_read_chunk(layer, std::max<std::int64_t>(n_tokens - kCutSlackTokens, 0));
}

// Counts the KV chunks of rings that rows of positions below `n_tokens` overwrite as lost. Call before such rows are
// written.
void KvCache::overwrite_to(std::int64_t n_tokens) {
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        if (store_.is_ring(layer))
            first_kept_[layer] = std::max(first_kept_[layer], chunks_of(n_tokens) - store_.kept_chunks(layer));
}

// Changes the versions of the KV chunks that hold the positions [n_committed(), n_tokens). Call before rows of these
// positions are written.
void KvCache::count_writes(std::int64_t n_tokens) {
    for (std::int64_t chunk = n_committed() / kChunkTokens; chunk * kChunkTokens < n_tokens; ++chunk)
        ++versions_[chunk];
}

NodeId KvCache::add_node(NodeId parent, NodeKind kind) {
    const NodeId node = nodes_.add(parent, kind);
    CHECK(!states_ || nodes_.n_drafts() <= states_->max_drafts(), "{} draft nodes, room for {}", nodes_.n_drafts(),
          states_->max_drafts());
    if (host_) host_->extents().ask((position(node) + kTokensAhead) / kChunkTokens);
    return node;
}

void KvCache::await_room(std::int64_t n_rows) {
    if (host_) host_->extents().wait((n_committed() + n_rows) / kChunkTokens);
}

void KvCache::read_rows(ExecRef exec, std::int64_t layer, NodeId node, std::byte* out) const {
    const std::size_t bytes = layout(layer).scratch_row_bytes();
    const std::size_t from = node.row * bytes;
    exec.stream.copy(out, scratch_k(layer) + from, bytes);
    exec.stream.copy(out + bytes, scratch_v(layer) + from, bytes);
}

// Commits KV chunk by KV chunk if any streams, so that a tail slot is flushed before another KV chunk needs it.
void KvCache::commit(ExecRef exec, std::span<const NodeId> path) {
    nodes_.check_path(path);
    await_room(std::ssize(path));
    const std::span<const NodeId> whole = path;
    while (!path.empty()) {
        const std::int64_t first = n_committed();
        const std::int64_t chunk = first / kChunkTokens;
        const std::int64_t room = host_ ? (chunk + 1) * kChunkTokens - first : std::ssize(path);
        const std::span<const NodeId> rows = path.first(std::min(room, std::ssize(path)));
        if (host_) open_place(exec.stream, chunk);
        overwrite_to(first + std::ssize(rows));
        count_writes(first + std::ssize(rows));
        store_.commit(exec, store_, rows, first);
        nodes_.set_committed(first + std::ssize(rows));
        if (host_ && n_committed() % kChunkTokens == 0) host_->flush_tail(exec.stream, chunk);
        path = path.subspan(rows.size());
    }
    // Last, since a commit of KV may fail: then a cut to the positions before it finds the states as they were.
    if (states_) commit_states(exec, whole);
    forget();
}

void KvCache::commit_states(ExecRef exec, std::span<const NodeId> path) {
    std::int64_t end_certain = 0;
    drafts_.clear();
    for (const NodeId node : path) {
        if (nodes_.is_certain(node)) {
            end_certain = nodes_.slot(node) + 1;
        } else {
            drafts_.push_back(nodes_.draft_index(node));
        }
    }
    states_->commit(exec, end_certain, drafts_);
}

// Counts the first `n_tokens` positions as committed, which positions_after_cut() must allow.
void KvCache::keep_positions(std::int64_t n_tokens) {
    nodes_.set_committed(n_tokens);
    if (states_) states_->cut(n_tokens);
}

void KvCache::truncate(ExecRef exec, std::int64_t n_tokens) {
    CHECK(n_tokens >= 0 && n_tokens <= n_committed(), "{} of {} positions", n_tokens, n_committed());
    forget();
    if (n_tokens == n_committed()) return;
    if (host_) host_->invalidate(exec.stream);  // first, since it may throw the error of an earlier copy
    n_tokens = positions_after_cut(n_tokens);
    if (n_tokens == 0) return drop_all();
    keep_positions(n_tokens);
    if (!host_) return;
    const std::int64_t n_full = n_tokens / kChunkTokens;
    const bool was_flushed = n_full < host_->n_chunks();
    const bool ends_full = n_tokens % kChunkTokens == 0;
    host_->cut(n_full);
    store_.release_from(ends_full ? n_full : n_full + 1);
    if (was_flushed && !ends_full) fetch_tail(exec.stream, n_full);
}

void KvCache::truncate(std::int64_t n_tokens) {
    CHECK(!streams() && n_tokens >= 0 && n_tokens <= n_committed(), "{} of {} positions", n_tokens, n_committed());
    rollback(n_tokens);
}

// Drops all positions. What rings have overwritten does not matter any more.
void KvCache::drop_all() noexcept {
    nodes_.set_committed(0);
    if (states_) states_->reset();
    std::ranges::fill(first_kept_, 0);
    if (!host_) return;
    host_->cut(0);
    store_.release_from(0);
}

// Truncates to whole KV chunks after recover(): nothing is copied back or waited for, so this cannot fail.
void KvCache::keep_chunks(std::int64_t n_chunks) noexcept {
    std::int64_t n_tokens = positions_after_cut(n_chunks * kChunkTokens);
    while (n_tokens % kChunkTokens != 0) n_tokens = positions_after_cut(n_tokens / kChunkTokens * kChunkTokens);
    n_chunks = n_tokens / kChunkTokens;
    if (n_chunks == 0) return drop_all();
    keep_positions(n_chunks * kChunkTokens);
    host_->cut(n_chunks);
    store_.release_from(n_chunks);
}

std::int64_t KvCache::keep_intact_prefix(ExecRef exec) noexcept {
    forget();
    // A ring lacks KV, since a restore or a prompt has not come to its end.
    if (positions_after_cut(n_committed()) == 0) drop_all();
    if (!host_) return n_committed();
    const std::int64_t n_there = host_->recover(exec.stream);
    const std::int64_t n_full = n_committed() / kChunkTokens;
    if (n_there < host_->n_chunks()) {
        keep_chunks(n_there);
    } else if (n_committed() % kChunkTokens != 0 && store_.held_at(n_full) != n_full) {
        keep_chunks(n_full);
    }
    return n_committed();
}

void KvCache::read_chunk(ExecRef exec, std::int64_t layer, std::int64_t chunk, std::byte* out) {
    CHECK(chunk >= first_kept_chunk(layer) && chunk * kChunkTokens < n_committed(),
          "chunk {} of {} positions, kept from chunk {} on", chunk, n_committed(), first_kept_chunk(layer));
    const std::size_t bytes = layout(layer).chunk_bytes();
    if (bytes == 0) return;  // a recurrent layer
    if (host_ && chunk >= resident_chunks(layer) && chunk < host_->n_chunks()) {
        host_->await_flush(exec.stream, chunk);
        exec.stream.synchronize();
        std::copy_n(host_->chunk(layer, chunk), bytes, out);
        return;
    }
    exec.stream.copy(out, chunks(layer)[chunk], bytes);
    exec.stream.synchronize();
}

void KvCache::restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens,
                      const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    begin_restore(exec, first, n_tokens);
    try {
        for (std::int64_t chunk = first / kChunkTokens; chunk < chunks_of(n_tokens); ++chunk)
            for (std::int64_t layer = 0; layer < n_layers(); ++layer)
                if (chunk >= first_restored_chunk(layer, n_tokens))
                    restore_chunk(exec, n_tokens, layer, chunk, [&](std::byte* out) { read(layer, chunk, out); });
    } catch (...) {
        if (positions_after_cut(first) == 0) drop_all();
        throw;
    }
    end_restore(n_tokens);
}

void KvCache::begin_restore(ExecRef exec, std::int64_t first, std::int64_t n_tokens) {
    CHECK(n_committed() == first && first % kChunkTokens == 0 && n_nodes() == 0 && first <= n_tokens &&
              n_tokens <= context_tokens(),
          "positions {} to {} after {} and {} nodes", first, n_tokens, n_committed(), n_nodes());
    CHECK(!states_ || n_tokens == first || states_->kept() == n_tokens,
          "KV to position {} is restored, the states of recurrent layers are after {}", n_tokens,
          states_ ? states_->kept() : 0);
    if (host_) {
        host_->extents().ask(n_tokens / kChunkTokens);
        host_->invalidate(exec.stream);        // a prepared schedule does not have the restored KV chunks
        host_->wait_for_flushes(exec.stream);  // flushes of an earlier text may still write to the host
    }
    if (first == n_tokens) return;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer)
        first_kept_[layer] = std::max(first_kept_[layer], first_restored_chunk(layer, n_tokens));
}

void KvCache::restore_chunk(ExecRef exec, std::int64_t n_tokens, std::int64_t layer, std::int64_t chunk,
                            const std::function<void(std::byte*)>& fill) {
    const std::int64_t n_full = n_tokens / kChunkTokens;
    ++versions_[chunk];
    if (chunk >= resident_chunks(layer) && chunk < n_full) return fill(host_->chunk(layer, chunk));
    if (chunk < resident_chunks(layer) && exec.device.shares_host_memory()) {
        exec.stream.synchronize();
        return fill(chunks(layer)[chunk]);
    }
    if (host_ && chunk == n_full) open_place(exec.stream, chunk);
    const auto staging = std::make_unique_for_overwrite<std::byte[]>(layout(layer).chunk_bytes());
    fill(staging.get());
    exec.stream.copy(chunks(layer)[chunk], staging.get(), layout(layer).chunk_bytes());
    exec.stream.synchronize();
}

void KvCache::end_restore(std::int64_t n_tokens) {
    nodes_.set_committed(n_tokens);
    if (host_) host_->add_written(n_tokens / kChunkTokens);
}

// Prepares the tail slot of the KV chunk `chunk` for writing, in every layer in which it streams.
void KvCache::open_place(Stream& compute, std::int64_t chunk) {
    if (store_.held_at(chunk) == chunk) return;
    host_->clear_place(compute, chunk);
    store_.hold(chunk);
}

// Copies a KV chunk from the host back to its tail slot, so that rows can be appended to it.
void KvCache::fetch_tail(Stream& compute, std::int64_t chunk) {
    const bool is_there = store_.held_at(chunk) == chunk;
    if (is_there) store_.release_from(chunk);  // the slot may still be the source of a flush
    open_place(compute, chunk);
    if (is_there) return;
    try {
        host_->await_flush(compute, chunk);
        for (std::int64_t layer = 0; layer < n_layers(); ++layer)
            if (chunk >= resident_chunks(layer))
                compute.copy(store_.tail_chunk(layer, chunk), host_->chunk(layer, chunk), layout(layer).chunk_bytes());
    } catch (...) {
        store_.release_from(chunk);
        throw;
    }
}

void KvCache::reserve(std::int64_t n_tokens) {
    CHECK(n_nodes() == 0 && n_tokens >= n_committed() && n_tokens <= context_tokens(), "{} positions after {}",
          n_tokens, n_committed());
    if (host_) host_->extents().ask(n_tokens / kChunkTokens);
    count_writes(n_tokens);
    nodes_.set_committed(n_tokens);
}

void KvCache::recommit(std::int64_t n_tokens) {
    CHECK(stays_ && n_nodes() == 0 && n_tokens >= n_committed() && n_tokens <= context_tokens(),
          "{} positions after {} and {} nodes", n_tokens, n_committed(), n_nodes());
    nodes_.set_committed(n_tokens);
}

void KvCache::publish(std::uint64_t flush_use) {
    if (states_) states_->keep_prompt(n_committed());
    if (!host_) return;
    CHECK(n_committed() % kChunkTokens == 0, "a prompt to position {}", n_committed());
    host_->add(n_committed() / kChunkTokens, flush_use);
    store_.release_from(0);
}

void KvCache::rollback(std::int64_t n_tokens) {
    forget();
    n_tokens = positions_after_cut(n_tokens);
    if (n_tokens == 0) return drop_all();
    keep_positions(n_tokens);
}

}  // namespace slipstream
