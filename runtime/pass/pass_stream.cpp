#include "runtime/pass/pass_stream.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

// Blocks of a program with every chunk of the context on the host.
std::int64_t most_blocks(const Model& model, const KvCache& cache, std::int64_t chunks_per_copy) {
    std::int64_t n = std::ssize(model.items());
    for (std::int64_t layer = 0; layer < cache.n_layers(); ++layer)
        n += ceil_div(cache.n_chunks() - cache.resident_chunks(layer), chunks_per_copy) + 1;
    return n;
}

std::size_t largest_block(const Model& model, const KvCache& cache, std::int64_t chunks_per_copy) {
    std::size_t bytes = cache.streams() ? static_cast<std::size_t>(chunks_per_copy) * cache.shape().chunk_bytes() : 0;
    for (std::size_t i = 0; i < model.items().size(); ++i)
        if (model.streams(static_cast<std::int32_t>(i))) bytes = std::max(bytes, model.items()[i].bytes);
    return bytes;
}

}  // namespace

// Four copies of KV in the ring at least, so that the link goes on while one is read; never beyond an extent.
std::int64_t PassStream::chunks_per_copy(std::size_t ring_bytes, std::size_t chunk_bytes) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(ring_bytes / 4 / chunk_bytes), 1, kChunksPerExtent);
}

PassStream::PassStream(const Model& model, KvCache& cache, PinnedArena& arena, std::size_t ring_bytes)
    : model_(&model),
      cache_(&cache),
      arena_(&arena),
      chunks_per_copy_(chunks_per_copy(ring_bytes, cache.shape().chunk_bytes())) {
    const std::size_t block = TransferRing::slot_bytes(largest_block(model, cache, chunks_per_copy_));
    if (ring_bytes < 2 * block)
        throw OutOfBudget(
            fmt::format("{}: a ring of {} bytes does not hold two of the largest block that streams, {} bytes; raise "
                        "--ring or --device-memory",
                        model.device().name(), ring_bytes, block));
    region_ = model.device().allocate(ring_bytes, MemoryTag::Ring, "the transfer ring");
    copy_in_ = model.device().make_stream(StreamKind::CopyIn);
    const std::int64_t most = most_blocks(model, cache, chunks_per_copy_);
    ring_ = std::make_unique<TransferRing>(model.device(), std::span(region_.data(), region_.size_bytes()), *copy_in_,
                                           std::min<std::int64_t>(2 * most, 4096));
    feed_ = std::make_unique<PassFeed>(*ring_, *this, most);
    for (Program& program : programs_) program.blocks.reserve(static_cast<std::size_t>(most));
    cache.set_frozen_programs(this);
}

PassStream::~PassStream() {
    cache_->set_frozen_programs(nullptr);
    cache_->drop_program();
}

void PassStream::next_program(std::vector<TransferItem>& program) {
    CHECK(n_made_ <= n_begun_, "a program made further ahead than one pass");
    Program& made = programs_[++n_made_ % 2];
    program.clear();
    made.blocks.clear();
    made.host_chunks = cache_->snapshot();
    const std::vector<WeightItem>& items = model_->items();
    std::int64_t kv_layer = 0;  // the next one whose KV is not in the program
    for (std::size_t i = 0; i < items.size(); ++i) {
        // The KV of a layer stands before the first item of its second half.
        const MatrixRole first = items[i].parts.front().role;
        while (kv_layer < cache_->n_layers() &&
               (kv_layer < items[i].layer || (kv_layer == items[i].layer && first >= MatrixRole::AttnOut)))
            add_kv(kv_layer++, made, program);
        if (!model_->streams(static_cast<std::int32_t>(i))) continue;
        made.blocks.push_back({.item = static_cast<std::int32_t>(i), .bytes = items[i].bytes});
        program.push_back({.source = model_->item_data(static_cast<std::int32_t>(i)), .bytes = items[i].bytes});
    }
}

void PassStream::add_kv(std::int64_t layer, Program& made, std::vector<TransferItem>& program) {
    const std::int64_t window = model_->config().window(layer);
    const std::int64_t resident = cache_->resident_chunks(layer);
    std::int64_t first = resident;
    // Chunks that lie wholly before every query's window are not read; positions only grow until a program is thawed.
    if (window > 0) first = std::max(first, (cache_->n_committed() + 1 - window) / kChunkTokens);
    while (first < made.host_chunks) {
        const std::int64_t extent_end = resident + ((first - resident) / kChunksPerExtent + 1) * kChunksPerExtent;
        const std::int64_t end = std::min({made.host_chunks, extent_end, first + chunks_per_copy_});
        const std::size_t bytes = static_cast<std::size_t>(end - first) * cache_->shape().chunk_bytes();
        made.blocks.push_back({.layer = layer, .chunks = {first, end}, .bytes = bytes});
        program.push_back({.source = cache_->host_chunk(layer, first),
                           .bytes = bytes,
                           .after = &cache_->flushed(),
                           .after_use = cache_->flush_use(end - 1)});
        first = end;
    }
}

void PassStream::begin_pass(Stream& compute) {
    CHECK(!in_pass_, "a pass within a pass");
    ++n_begun_;  // first: the feed may ask for the program behind this one at once
    at_ = 0;
    feed_->begin_pass(compute);
    in_pass_ = true;
    if (n_made_ == n_begun_) cache_->drop_program();  // else the one behind it is made already
}

const std::byte* PassStream::acquire_block(Stream& compute) {
    const auto began = std::chrono::steady_clock::now();
    const std::byte* data = feed_->acquire(static_cast<std::int64_t>(at_), compute);
    figures_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return data;
}

void PassStream::release_block(Stream& compute) {
    const Block& block = running().blocks[at_];
    (block.item >= 0 ? figures_.weights_bytes : figures_.kv_bytes) += block.bytes;
    feed_->release(static_cast<std::int64_t>(at_), compute);
    ++at_;
}

const std::byte* PassStream::acquire_item(std::int32_t item, Stream& compute) {
    CHECK(in_pass_ && at_ < running().blocks.size() && running().blocks[at_].item == item, "item {} out of order",
          item);
    return acquire_block(compute);
}

void PassStream::release_item(std::int32_t item, Stream& compute) {
    CHECK(in_pass_ && at_ < running().blocks.size() && running().blocks[at_].item == item, "item {} out of order",
          item);
    release_block(compute);
}

std::optional<KvPiece> PassStream::acquire_kv(std::int64_t layer, Stream& compute) {
    CHECK(in_pass_);
    const std::vector<Block>& blocks = running().blocks;
    if (at_ == blocks.size() || blocks[at_].item >= 0 || blocks[at_].layer != layer) return std::nullopt;
    const Block& block = blocks[at_];
    // The cache's table is of mutable chunks, since those of the tail are written; these are only read.
    auto* data = const_cast<std::byte*>(acquire_block(compute));
    for (std::int64_t chunk = block.chunks.first_chunk; chunk < block.chunks.end_chunk; ++chunk) {
        cache_->set_chunk(layer, chunk, data);
        data += cache_->shape().chunk_bytes();
    }
    return block.chunks;
}

void PassStream::release_kv(Stream& compute) {
    const Block& block = running().blocks[at_];
    for (std::int64_t chunk = block.chunks.first_chunk; chunk < block.chunks.end_chunk; ++chunk)
        cache_->set_chunk(block.layer, chunk, nullptr);
    release_block(compute);
}

void PassStream::end_pass(Stream& compute) {
    CHECK(in_pass_);
    while (at_ < running().blocks.size()) {
        static_cast<void>(acquire_block(compute));
        release_block(compute);
    }
    feed_->end_pass();
    in_pass_ = false;
}

void PassStream::abandon(Stream& compute) {
    in_pass_ = false;
    invalidate(compute);
}

void PassStream::invalidate(Stream& compute) {
    CHECK(!in_pass_, "a program is given up while it runs");
    feed_->rewind(compute);
    n_made_ = n_begun_;
    cache_->drop_program();
}

std::span<std::byte> PassStream::lend_ring(Stream& compute) {
    invalidate(compute);
    return {region_.data(), region_.size_bytes()};
}

void PassStream::count(std::size_t weights_bytes, std::size_t kv_bytes) {
    figures_.weights_bytes += weights_bytes;
    figures_.kv_bytes += kv_bytes;
}

}  // namespace slipstream
