#include "runtime/pass/prompt_kv_pieces.h"

#include <algorithm>

#include "kernels/base/checked_math.h"

namespace slipstream {

std::size_t PromptKvPieces::least_bytes(std::size_t chunk_bytes, std::int64_t piece_tokens) {
    return 2 * static_cast<std::size_t>(ceil_div(piece_tokens, kChunkTokens)) * chunk_bytes +
           2 * TransferRing::slot_bytes(chunk_bytes);
}

PromptKvPieces::PromptKvPieces(PassStream& pass, ExecRef exec, std::span<std::byte> area, std::int64_t piece_tokens,
                               std::int64_t begin, std::int64_t end)
    : pass_(&pass),
      cache_(&pass.cache()),
      exec_(exec),
      piece_chunks_(piece_tokens / kChunkTokens),
      first_new_chunk_(begin / kChunkTokens),
      end_chunk_(end / kChunkTokens),
      slots_(area.data()) {
    CHECK(piece_tokens % kChunkTokens == 0 && area.size() >= least_bytes(cache_->shape().chunk_bytes(), piece_tokens),
          "pieces of {} tokens in {} bytes", piece_tokens, area.size());
    const std::size_t chunk = cache_->shape().chunk_bytes();
    const std::span<std::byte> ring = area.subspan(2 * static_cast<std::size_t>(piece_chunks_) * chunk);
    chunks_per_copy_ = PassStream::chunks_per_copy(ring.size(), chunk);
    const std::int64_t most = static_cast<std::int64_t>(ring.size() / chunk) + 1;
    ring_ = std::make_unique<TransferRing>(exec.device, ring, pass.copy_in(), most);
    new_use_.resize(static_cast<std::size_t>(end_chunk_ - first_new_chunk_));
    copied_.reserve(static_cast<std::size_t>(end_chunk_));
}

std::byte* PromptKvPieces::slot(std::int64_t chunk) const {
    const auto index = static_cast<std::int64_t>(parity_) * piece_chunks_ + chunk % piece_chunks_;
    return slots_ + static_cast<std::size_t>(index) * cache_->shape().chunk_bytes();
}

void PromptKvPieces::begin_piece(std::int64_t layer, std::int64_t first, std::int64_t end) {
    const std::int64_t resident = cache_->resident_chunks(layer);
    const std::int64_t first_chunk = first / kChunkTokens;
    layer_ = layer;
    n_host_ = first_chunk;
    own_ = {std::max(first_chunk, resident), ceil_div(end, kChunkTokens)};
    CHECK(at_ == copied_.size(), "a piece begins before all KV of the last one is read");
    const std::int64_t window = pass_->model().config().window(layer);
    copied_.clear();
    at_ = 0;
    first_number_ = ring_->next_number();
    next_ = window > 0 ? std::max(resident, (first + 1 - window) / kChunkTokens) : resident;
    // Of a prompt's last layer nothing but rows for the cache is wanted, so nothing is read.
    if (first < end && layer + 1 == cache_->n_layers()) next_ = n_host_;
    if (own_.first_chunk < own_.end_chunk) {
        parity_ ^= 1;
        if (slots_use_[parity_] > 0) exec_.stream.wait(cache_->flushed(), slots_use_[parity_]);
        for (std::int64_t chunk = own_.first_chunk; chunk < own_.end_chunk; ++chunk)
            cache_->set_chunk(layer, chunk, slot(chunk));
        if (first % kChunkTokens != 0 && first_chunk >= resident)  // begun by what was committed before the prompt
            exec_.stream.copy(slot(first_chunk), cache_->tail_slot(layer, first_chunk), cache_->shape().chunk_bytes());
    }
    copy_ahead();
}

void PromptKvPieces::end_piece() {
    if (own_.first_chunk >= own_.end_chunk) return;
    last_flush_ = cache_->flush(exec_, [&](Stream& out) {
        for (std::int64_t chunk = own_.first_chunk; chunk < own_.end_chunk; ++chunk)
            out.copy(cache_->host_chunk(layer_, chunk), slot(chunk), cache_->shape().chunk_bytes());
    });
    slots_use_[parity_] = last_flush_;
    for (std::int64_t chunk = own_.first_chunk; chunk < own_.end_chunk; ++chunk) {
        new_use_[chunk - first_new_chunk_] = last_flush_;
        cache_->set_chunk(layer_, chunk, nullptr);
    }
}

void PromptKvPieces::copy_ahead() {
    const std::size_t chunk_bytes = cache_->shape().chunk_bytes();
    const std::int64_t resident = cache_->resident_chunks(layer_);
    while (next_ < n_host_) {
        const std::int64_t extent_end = resident + ((next_ - resident) / kChunksPerExtent + 1) * kChunksPerExtent;
        const std::int64_t end = std::min({n_host_, extent_end, next_ + chunks_per_copy_});
        const std::size_t bytes = static_cast<std::size_t>(end - next_) * chunk_bytes;
        if (!ring_->has_room(bytes)) return;
        // Uses grow with the chunks: those that this prompt fills are flushed behind all that were there before.
        const std::uint64_t use =
            end > first_new_chunk_ ? new_use_[end - 1 - first_new_chunk_] : cache_->flush_use(end - 1);
        ring_->push({.source = cache_->host_chunk(layer_, next_),
                     .bytes = bytes,
                     .after = &cache_->flushed(),
                     .after_use = use});
        copied_.push_back({next_, end});
        next_ = end;
    }
}

std::optional<KvPiece> PromptKvPieces::acquire_kv(std::int64_t layer, Stream& compute) {
    CHECK(layer == layer_, "KV of layer {} while {} is computed", layer, layer_);
    if (at_ == copied_.size()) return std::nullopt;
    const KvPiece piece = copied_[at_];
    // As in a pass: the cache's table is of mutable chunks, and these are only read.
    auto* data = const_cast<std::byte*>(ring_->acquire(first_number_ + static_cast<std::int64_t>(at_), compute));
    for (std::int64_t chunk = piece.first_chunk; chunk < piece.end_chunk; ++chunk) {
        cache_->set_chunk(layer, chunk, data);
        data += cache_->shape().chunk_bytes();
    }
    return piece;
}

void PromptKvPieces::release_kv(Stream& compute) {
    const KvPiece piece = copied_[at_];
    for (std::int64_t chunk = piece.first_chunk; chunk < piece.end_chunk; ++chunk)
        cache_->set_chunk(layer_, chunk, nullptr);
    ring_->release(first_number_ + static_cast<std::int64_t>(at_), compute);
    ++at_;
    pass_->count(0, static_cast<std::size_t>(piece.end_chunk - piece.first_chunk) * cache_->shape().chunk_bytes());
    copy_ahead();
}

void PromptKvPieces::drop() {
    ring_->drop_all(exec_.stream);
}

}  // namespace slipstream
