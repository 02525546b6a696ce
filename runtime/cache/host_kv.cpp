#include "runtime/cache/host_kv.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

HostKv::HostKv(Device& device, PinnedArena& arena, const DeviceKv& store)
    : store_(&store),
      extents_(arena, store),
      copy_out_(device.make_stream(StreamKind::CopyOut)),
      written_(device.make_event()),
      flushed_(device.make_event()),
      flush_use_(store.n_chunks(), 0) {}

HostKv::~HostKv() {
    try {
        copy_out_->synchronize();
    } catch (...) {  // the error of a failed flush is dropped: no pass is left that could read the KV chunk
    }
}

void HostKv::flush_tail(Stream& compute, std::int64_t chunk) {
    CHECK(chunk == n_chunks_, "chunk {} is flushed after {}", chunk, n_chunks_);
    add(chunk + 1, flush(compute, [&](Stream& out) {
            for (std::int64_t layer = 0; layer < store_->n_layers(); ++layer)
                if (chunk >= store_->resident_chunks(layer))
                    out.copy(this->chunk(layer, chunk), store_->tail_chunk(layer, chunk),
                             store_->layout(layer).chunk_bytes());
        }));
}

void HostKv::add(std::int64_t n_chunks, std::uint64_t flush_use) {
    for (; n_chunks_ < n_chunks; ++n_chunks_) flush_use_[n_chunks_] = flush_use;
}

void HostKv::add_written(std::int64_t n_chunks) {
    add(n_chunks, copy_out_->record(*flushed_));
}

void HostKv::wait_for_flushes(Stream& compute) {
    if (flushed_->recorded() > 0) compute.wait(*flushed_, flushed_->recorded());
    compute.synchronize();
}

void HostKv::cut(std::int64_t n_chunks) {
    n_chunks_ = std::min(n_chunks_, n_chunks);
}

std::int64_t HostKv::recover(Stream& compute) noexcept {
    const auto holds = [](const auto& call) {
        try {
            call();
            return true;
        } catch (...) {
            return false;
        }
    };
    static_cast<void>(holds([&] { invalidate(compute); }));
    static_cast<void>(holds([&] { copy_out_->synchronize(); }));
    std::int64_t n_whole = 0;
    while (n_whole < n_chunks_ && holds([&] { await_flush(compute, n_whole); })) ++n_whole;
    // The last use of flushed_ must be one that has not failed.
    static_cast<void>(holds([&] { static_cast<void>(copy_out_->record(*flushed_)); }));
    return n_whole;
}

void HostKv::clear_place(Stream& compute, std::int64_t chunk) {
    const std::int64_t held = store_->held_at(chunk);
    if (held < 0) {  // the tail slot is free, but a flush may still copy its previous KV chunk to the host
        if (flushed_->recorded() > 0) compute.wait(*flushed_, flushed_->recorded());
        return;
    }
    if (snapshot_chunks_ <= held) invalidate(compute);
    await_flush(compute, held);
}

std::int64_t HostKv::snapshot(PreparedSchedules& schedules) {
    CHECK(schedules_ == nullptr || schedules_ == &schedules, "two streams over one KV cache have prepared schedules");
    schedules_ = &schedules;
    snapshot_chunks_ = n_chunks_;
    return n_chunks_;
}

}  // namespace slipstream
