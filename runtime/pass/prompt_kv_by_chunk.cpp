#include "runtime/pass/prompt_kv_by_chunk.h"

#include <algorithm>

#include "kernels/base/checked_math.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

std::size_t PromptKvByChunk::least_bytes(std::size_t chunk_bytes, std::int64_t chunk_tokens) {
    return 2 * static_cast<std::size_t>(ceil_div(chunk_tokens, kChunkTokens)) * chunk_bytes +
           2 * TransferRing::slot_bytes(chunk_bytes);
}

PromptKvByChunk::PromptKvByChunk(PassStream& pass, const PassReads& reads, const DeviceKv& store, ExecRef exec,
                                 std::span<std::byte> area, const PromptRange& range)
    : pass_(&pass),
      reads_(reads),
      store_(&store),
      exec_(exec),
      kv_chunks_per_prefill_chunk_(range.chunk_tokens / kChunkTokens),
      first_new_chunk_(range.first_chunk()),
      last_layer_(range.last_layer),
      slot_bytes_(store.largest_streamed_chunk()),
      slots_(area.data()),
      new_use_(range.end_chunk() - range.first_chunk()),
      table_(range.end_chunk(), nullptr),
      segment_(range.end_chunk(), nullptr) {
    CHECK(range.chunk_tokens % kChunkTokens == 0 && area.size() >= least_bytes(slot_bytes_, range.chunk_tokens),
          "prefill chunks of {} tokens in {} bytes", range.chunk_tokens, area.size());
    const std::span<std::byte> ring =
        area.subspan(2 * static_cast<std::size_t>(kv_chunks_per_prefill_chunk_) * slot_bytes_);
    const std::int64_t most = static_cast<std::int64_t>(ring.size() / store.smallest_streamed_chunk()) + 1;
    ring_ = std::make_unique<TransferRing>(exec.device, ring, pass.copy_in(), most);
    if (pass.is_traced()) ring_->time_copies();
    copied_.reserve(range.end_chunk());
}

std::byte* PromptKvByChunk::slot(std::int64_t chunk) const {
    const auto index =
        static_cast<std::int64_t>(parity_) * kv_chunks_per_prefill_chunk_ + chunk % kv_chunks_per_prefill_chunk_;
    return slots_ + index * slot_bytes_;
}

// Begins a layer. KV chunks that an earlier run filled are on the host already, so no flush is awaited before they are
// read.
void PromptKvByChunk::begin_layer(std::int64_t layer, std::int64_t from) {
    layer_ = layer;
    std::fill_n(new_use_.begin(), std::max<std::int64_t>(from / kChunkTokens - first_new_chunk_, 0), 0);
    const std::int64_t n_resident = std::min(store_->resident_chunks(layer), std::ssize(table_));
    std::fill(std::copy_n(store_->chunks(layer), n_resident, table_.begin()), table_.end(), nullptr);
}

void PromptKvByChunk::begin_prefill_chunk(std::int64_t first, std::int64_t end) {
    const std::int64_t resident = store_->resident_chunks(layer_);
    const std::int64_t first_chunk = first / kChunkTokens;
    n_host_ = first_chunk;
    own_ = {std::max(first_chunk, resident), ceil_div(end, kChunkTokens)};
    CHECK(at_ == copied_.size(), "a prefill chunk begins before all KV of the last one is read");
    copied_.clear();
    at_ = 0;
    first_number_ = ring_->next_number();
    next_ = std::max(resident, first_chunk_in_window(reads_.model->config().window(layer_), first));
    // Of the prompt's positions the last layer computes KV only and no queries, so it reads no earlier KV.
    if (first < end && layer_ == last_layer_) next_ = n_host_;
    if (!own_.empty()) {
        parity_ ^= 1;
        if (slots_use_[parity_] > 0) exec_.stream.wait(reads_.kv->host()->flushed(), slots_use_[parity_]);
        for (std::int64_t chunk = own_.first; chunk < own_.end; ++chunk) table_[chunk] = slot(chunk);
        if (first % kChunkTokens != 0 && first_chunk >= resident)  // the KV chunk has positions before the prompt
            exec_.stream.copy(slot(first_chunk), store_->tail_chunk(layer_, first_chunk), chunk_bytes());
    }
    copy_ahead();
}

void PromptKvByChunk::end_prefill_chunk() {
    if (own_.empty()) return;
    HostKv& host = *reads_.kv->host();
    last_flush_ = host.flush(exec_.stream, [&](Stream& out) {
        for (std::int64_t chunk = own_.first; chunk < own_.end; ++chunk)
            out.copy(host.chunk(layer_, chunk), slot(chunk), chunk_bytes());
    });
    slots_use_[parity_] = last_flush_;
    for (std::int64_t chunk = own_.first; chunk < own_.end; ++chunk) {
        new_use_[chunk - first_new_chunk_] = last_flush_;
        table_[chunk] = nullptr;
    }
}

void PromptKvByChunk::copy_ahead() {
    if (next_ >= n_host_) return;  // always so for recurrent layers, whose KV chunks have no bytes
    HostKv& host = *reads_.kv->host();
    const std::int64_t per_copy = chunks_per_copy(*reads_.model, ring_->region_bytes(), chunk_bytes());
    while (next_ < n_host_) {
        const std::int64_t end = std::min({n_host_, next_ + per_copy, host.extents().end_of_extent(layer_, next_)});
        const std::size_t bytes = (end - next_) * chunk_bytes();
        if (!ring_->has_room(bytes)) return;
        // Later KV chunks have the same or later uses, since those of this prompt are flushed after all earlier ones.
        // So the use of the last KV chunk is enough.
        const std::uint64_t use =
            end > first_new_chunk_ ? new_use_[end - 1 - first_new_chunk_] : host.flush_use(end - 1);
        ring_->push({.source = host.chunk(layer_, next_), .bytes = bytes, .after = &host.flushed(), .after_use = use});
        copied_.push_back({next_, end});
        next_ = end;
    }
}

ChunkRange PromptKvByChunk::streamed(std::int64_t layer) const {
    return {store_->resident_chunks(layer), n_host_};
}

std::optional<KvSegment> PromptKvByChunk::acquire_kv(std::int64_t layer, Stream& compute) {
    CHECK(layer == layer_, "KV of layer {} while {} is computed", layer, layer_);
    if (at_ == copied_.size()) return std::nullopt;
    const ChunkRange range = copied_[at_];
    const std::byte* data =
        with_context("KV", [&] { return ring_->acquire(first_number_ + static_cast<std::int64_t>(at_), compute); });
    for (std::int64_t chunk = range.first; chunk < range.end; ++chunk, data += chunk_bytes()) segment_[chunk] = data;
    return KvSegment{range, segment_.data()};
}

void PromptKvByChunk::release_kv(Stream& compute) {
    const ChunkRange range = copied_[at_];
    const std::int64_t number = first_number_ + static_cast<std::int64_t>(at_);
    pass_->count_kv(layer_, (range.end - range.first) * chunk_bytes(),
                    pass_->is_traced() ? ring_->copy_times(number) : CopyTimes{});
    ring_->release(number, compute);
    ++at_;
    copy_ahead();
}

void PromptKvByChunk::drop() {
    ring_->drop_all(exec_.stream);
}

}  // namespace slipstream
