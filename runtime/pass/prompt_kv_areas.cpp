#include "runtime/pass/prompt_kv_areas.h"

#include <algorithm>
#include <chrono>

#include "kernels/event_time.h"

namespace slipstream {

std::size_t PromptKvAreas::area_bytes(const KvCache& cache, std::int64_t end_chunk) {
    std::size_t most = 0;
    for (std::int64_t layer = 0; layer < cache.n_layers(); ++layer) {
        const std::int64_t n_chunks = std::max<std::int64_t>(end_chunk - cache.resident_chunks(layer), 0);
        most = std::max(most, std::min(n_chunks, cache.store().kept_chunks(layer)) * cache.layout(layer).chunk_bytes());
    }
    return most;
}

PromptKvAreas::PromptKvAreas(PassStream& pass, KvCache& cache, ExecRef exec, std::span<std::byte> areas,
                             const PromptRange& range)
    : pass_(&pass),
      cache_(&cache),
      exec_(exec),
      range_(range),
      areas_(areas),
      area_bytes_(area_bytes(cache, range.end_chunk())),
      area_use_(area_bytes_ > 0 ? areas.size() / area_bytes_ : 1, 0),
      table_(range.end_chunk(), nullptr),
      computed_(exec.device.make_event()),
      loaded_(exec.device.make_event()) {}

std::byte* const* PromptKvAreas::chunks(std::int64_t layer) const {
    return streams(layer) ? table_.data() : cache_->chunks(layer);
}

void PromptKvAreas::begin_layer(std::int64_t layer, std::int64_t from) {
    layer_ = layer;
    n_host_ = from / kChunkTokens;
    in_layer_ = true;
    if (!streams(layer)) return;
    const std::int64_t resident = cache_->resident_chunks(layer);
    const auto area = static_cast<std::size_t>(layer) % area_use_.size();
    if (const std::uint64_t use = area_use_.at(area); use > 0) exec_.stream.wait(cache_->host()->flushed(), use);
    std::copy_n(cache_->chunks(layer), resident, table_.begin());
    std::byte* const data = areas_.data() + area * area_bytes_;
    for (std::int64_t chunk = resident; chunk < range_.end_chunk(); ++chunk)
        table_[chunk] = data + cache_->store().place(layer, chunk) * cache_->layout(layer).chunk_bytes();
    load(from);
}

// Copies what the cache already has of the layer, and queries from position `from` on see of it: full KV chunks from
// the host; if the prompt begins within a KV chunk, that one from the tail.
void PromptKvAreas::load(std::int64_t from) {
    HostKv& host = *cache_->host();
    const std::size_t chunk_bytes = cache_->layout(layer_).chunk_bytes();
    const std::int64_t resident = cache_->resident_chunks(layer_);
    const std::int64_t first = std::max(resident, cache_->first_read_chunk(layer_, from));
    if (first < n_host_) {
        Stream& in = pass_->copy_in();
        CopyTimes times;
        if (pass_->is_traced()) times.begin = std::chrono::steady_clock::now();
        in.wait(*computed_, exec_.stream.record(*computed_));  // the compute stream no longer uses the area
        if (first < range_.first_chunk()) host.await_flush(in, range_.first_chunk() - 1);
        for (std::int64_t chunk = first; chunk < n_host_; ++chunk)
            in.copy(table_[chunk], host.chunk(layer_, chunk), chunk_bytes);
        exec_.stream.wait(*loaded_, in.record(*loaded_));
        if (pass_->is_traced()) times.end = completion_time(*loaded_).value_or(std::chrono::steady_clock::now());
        pass_->count_kv(layer_, (n_host_ - first) * chunk_bytes, times);
    }
    if (range_.begin % kChunkTokens != 0 && n_host_ == range_.first_chunk() && n_host_ >= resident)
        exec_.stream.copy(table_[n_host_], cache_->store().tail_chunk(layer_, n_host_), chunk_bytes);
}

void PromptKvAreas::end_layer() {
    in_layer_ = false;
    if (!streams(layer_)) return;
    HostKv& host = *cache_->host();
    last_flush_ = host.flush(exec_.stream, [&](Stream& out) {
        for (std::int64_t chunk = std::max(
                 {n_host_, cache_->resident_chunks(layer_), range_.end_chunk() - cache_->store().kept_chunks(layer_)});
             chunk < range_.end_chunk(); ++chunk)
            out.copy(host.chunk(layer_, chunk), table_[chunk], cache_->layout(layer_).chunk_bytes());
    });
    area_use_.at(static_cast<std::size_t>(layer_) % area_use_.size()) = last_flush_;
}

}  // namespace slipstream
