#include "runtime/pass/prompt_stream.h"

#include <algorithm>

#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlign = 64;

// What the ring holds of weights while a layer is computed: its items that stream, and room to wrap around. Items of
// the LM head go one by one.
std::size_t weights_bytes_at_once(const Model& model) {
    std::size_t most = 0;
    std::size_t sum = 0;
    std::size_t largest = 0;  // of layers
    std::size_t largest_of_head = 0;
    std::int64_t layer = -1;
    for (std::size_t i = 0; i < model.items().size(); ++i) {
        if (!model.streams(static_cast<std::int32_t>(i))) continue;
        const std::size_t slot = TransferRing::slot_bytes(model.items()[i].bytes);
        if (model.items()[i].layer == model.config().n_layers) {
            largest_of_head = std::max(largest_of_head, slot);
            continue;
        }
        if (model.items()[i].layer != layer) sum = 0;
        layer = model.items()[i].layer;
        sum += slot;
        most = std::max(most, sum);
        largest = std::max(largest, slot);
    }
    return std::max(TransferRing::region_bytes_for_run(most, largest), largest_of_head);
}

// KV of one layer up to chunk `end_chunk`, where it streams: the most of all layers.
std::size_t kv_bytes_at_once(const KvCache& cache, std::int64_t end_chunk) {
    std::int64_t most = 0;
    if (cache.streams())
        for (std::int64_t layer = 0; layer < cache.n_layers(); ++layer)
            if (cache.streams(layer)) most = std::max(most, end_chunk - cache.resident_chunks(layer));
    return static_cast<std::size_t>(most) * cache.shape().chunk_bytes();
}

}  // namespace

bool PromptStream::fits(const PassStream& pass, std::int64_t end, std::int64_t piece_tokens) {
    std::size_t kv = kv_bytes_at_once(pass.cache(), end / kChunkTokens);
    if (piece_tokens % kChunkTokens == 0)
        kv = std::min(kv, PromptKvPieces::least_bytes(pass.cache().shape().chunk_bytes(), piece_tokens));
    return round_up(weights_bytes_at_once(pass.model()), kAlign) + kv <= pass.ring_bytes();
}

PromptStream::PromptStream(PassStream& pass, ExecRef exec, std::int64_t begin, std::int64_t end,
                           std::int64_t piece_tokens)
    : pass_(&pass),
      cache_(&pass.cache()),
      exec_(exec),
      first_new_chunk_(begin / kChunkTokens),
      fills_partial_(begin % kChunkTokens != 0),
      end_chunk_(end / kChunkTokens),
      host_chunks_(cache_->host_chunks()),
      computed_(exec.device.make_event()),
      loaded_(exec.device.make_event()) {
    CHECK(end % kChunkTokens == 0 && begin < end, "a prompt from {} to {}", begin, end);
    const std::span<std::byte> ring = pass.lend_ring(exec.stream);
    area_bytes_ = kv_bytes_at_once(*cache_, end_chunk_);
    const std::size_t weights = weights_bytes_at_once(pass.model());
    if (weights + area_bytes_ > ring.size()) {
        area_ = ring.data() + round_up(weights, kAlign);
        pieces_ = std::make_unique<PromptKvPieces>(pass, exec, ring.subspan(round_up(weights, kAlign)), piece_tokens,
                                                   begin, end);
    } else {
        // Two areas let a layer begin while the last one is flushed; beyond that the weights have more use of the ring.
        n_areas_ = weights + 2 * area_bytes_ <= ring.size() ? 2 : 1;
        area_use_.assign(static_cast<std::size_t>(n_areas_), 0);
        const std::size_t areas = static_cast<std::size_t>(n_areas_) * area_bytes_;
        area_ = ring.data() + (ring.size() - areas) / kAlign * kAlign;
    }
    if (!pass.model().streams_weights()) return;
    for (std::size_t i = 0; i < pass.model().items().size(); ++i)
        index_.push_back(pass.model().streams(static_cast<std::int32_t>(i)) ? 1 + (index_.empty() ? -1 : index_.back())
                                                                            : (index_.empty() ? -1 : index_.back()));
    const std::int64_t n_items = index_.back() + 1;
    ring_ = std::make_unique<TransferRing>(exec.device, ring.first(static_cast<std::size_t>(area_ - ring.data())),
                                           pass.copy_in(), n_items);
    feed_ = std::make_unique<PassFeed>(*ring_, *this, n_items);
    feed_->begin_pass(exec.stream);
}

PromptStream::~PromptStream() {
    try {
        // What was enqueued may still write into the ring, which the next one to use it knows nothing of.
        if (!complete_) exec_.stream.synchronize();
    } catch (...) {
    }
    try {
        if (feed_ && !complete_) feed_->rewind(exec_.stream);
        if (pieces_ && !complete_) pieces_->drop();
        if (!complete_ && last_flush_ > 0) exec_.stream.wait(cache_->flushed(), last_flush_);
    } catch (...) {  // a copy that failed has been told by whoever waited for it
    }
    if (complete_ || !cache_->streams()) return;
    for (std::int64_t layer = 0; layer < cache_->n_layers(); ++layer) {
        for (std::int64_t chunk = cache_->resident_chunks(layer); chunk < end_chunk_; ++chunk)
            cache_->set_chunk(layer, chunk, nullptr);
        if (fills_partial_ && first_new_chunk_ >= cache_->resident_chunks(layer))
            cache_->set_chunk(layer, first_new_chunk_, cache_->tail_slot(layer, first_new_chunk_));
    }
}

void PromptStream::next_program(std::vector<TransferItem>& program) {
    program.clear();
    if (program_made_) return;  // nothing comes behind a prompt
    program_made_ = true;
    const Model& model = pass_->model();
    for (std::size_t i = 0; i < model.items().size(); ++i)
        if (model.streams(static_cast<std::int32_t>(i)))
            program.push_back(
                {.source = model.item_data(static_cast<std::int32_t>(i)), .bytes = model.items()[i].bytes});
}

const std::byte* PromptStream::acquire_item(std::int32_t item, Stream& compute) {
    return feed_->acquire(index_[item], compute);
}

void PromptStream::release_item(std::int32_t item, Stream& compute) {
    if (!last_piece_) return;
    feed_->release(index_[item], compute);
    pass_->count(pass_->model().items()[static_cast<std::size_t>(item)].bytes, 0);
}

bool PromptStream::kv_streams(std::int64_t layer) const {
    return cache_->streams() && cache_->resident_chunks(layer) < end_chunk_;
}

std::byte* PromptStream::area_chunk(std::int64_t layer, std::int64_t chunk) const {
    return area_ + static_cast<std::size_t>(layer % n_areas_) * area_bytes_ +
           static_cast<std::size_t>(chunk - cache_->resident_chunks(layer)) * cache_->shape().chunk_bytes();
}

void PromptStream::begin_layer(std::int64_t layer) {
    last_piece_ = false;
    layer_ = layer;
    if (pieces_ || !kv_streams(layer)) return;
    if (const std::uint64_t use = area_use_[layer % n_areas_]; use > 0) exec_.stream.wait(cache_->flushed(), use);
    load_layer(layer);
    for (std::int64_t chunk = cache_->resident_chunks(layer); chunk < end_chunk_; ++chunk)
        cache_->set_chunk(layer, chunk, area_chunk(layer, chunk));
}

// What the cache holds of the layer already: full chunks from the host, the last one from its slot.
void PromptStream::load_layer(std::int64_t layer) {
    const std::size_t chunk_bytes = cache_->shape().chunk_bytes();
    const std::int64_t first = cache_->resident_chunks(layer);
    if (first < host_chunks_) {
        Stream& in = pass_->copy_in();
        in.wait(*computed_, exec_.stream.record(*computed_));  // the area is free
        in.wait(cache_->flushed(), cache_->flush_use(host_chunks_ - 1));
        for (std::int64_t chunk = first; chunk < host_chunks_; ++chunk)
            in.copy(area_chunk(layer, chunk), cache_->host_chunk(layer, chunk), chunk_bytes);
        exec_.stream.wait(*loaded_, in.record(*loaded_));
        pass_->count(0, static_cast<std::size_t>(host_chunks_ - first) * chunk_bytes);
    }
    if (fills_partial_ && first_new_chunk_ >= first)
        exec_.stream.copy(area_chunk(layer, first_new_chunk_), cache_->tail_slot(layer, first_new_chunk_), chunk_bytes);
}

void PromptStream::begin_piece(std::int64_t first, std::int64_t end) {
    last_piece_ = first == end;
    if (pieces_) pieces_->begin_piece(layer_, first, end);
}

void PromptStream::end_piece() {
    if (!pieces_) return;
    pieces_->end_piece();
    last_flush_ = pieces_->last_flush();
}

void PromptStream::end_layer(std::int64_t layer) {
    if (pieces_ || !kv_streams(layer)) return;
    const std::int64_t first = std::max(first_new_chunk_, cache_->resident_chunks(layer));
    last_flush_ = cache_->flush(exec_, [&](Stream& out) {
        for (std::int64_t chunk = first; chunk < end_chunk_; ++chunk)
            out.copy(cache_->host_chunk(layer, chunk), area_chunk(layer, chunk), cache_->shape().chunk_bytes());
    });
    area_use_[layer % n_areas_] = last_flush_;
    for (std::int64_t chunk = cache_->resident_chunks(layer); chunk < end_chunk_; ++chunk)
        cache_->set_chunk(layer, chunk, nullptr);
}

// The ring may be used again at once: passes wait for the flush before they copy over what it reads.
void PromptStream::complete() {
    if (feed_) feed_->end_pass();
    if (last_flush_ > 0) exec_.stream.wait(cache_->flushed(), last_flush_);
    cache_->publish(last_flush_);
    complete_ = true;
}

}  // namespace slipstream
