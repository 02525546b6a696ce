#include "runtime/cache/host_extents.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

constexpr const char* kWhat = "the KV cache";

// Returns the KV chunks of each layer that get memory in one round: one, unless a GPU registers memory by extents, or a
// KV chunk of some layer is not whole pages.
std::int64_t round_chunks(const PinnedArena& arena, const DeviceKv& store) {
    const bool whole_pages = std::ranges::all_of(
        store.layouts(), [](const KvLayout& layout) { return layout.chunk_bytes() % HostPages::kPageBytes == 0; });
    return arena.registers() || !whole_pages ? kChunksPerExtent : 1;
}

}  // namespace

HostExtents::HostExtents(PinnedArena& arena, const DeviceKv& store)
    : arena_(&arena), store_(&store), first_chunk_(store.n_chunks()), round_chunks_(round_chunks(arena, store)) {
    std::size_t bytes = 0;
    for (std::int64_t layer = 0; layer < store.n_layers(); ++layer) {
        first_chunk_ = std::min(first_chunk_, store.resident_chunks(layer));
        at_.push_back(bytes);
        bytes += round_up(n_places(layer) * store.layout(layer).chunk_bytes(), HostPages::kPageBytes);
    }
    const std::size_t left = arena.limit_bytes() - arena.used_bytes();
    if (bytes > left)
        throw OutOfBudget(
            fmt::format("the KV cache of {} tokens needs {} bytes of host memory, {} are left of {}; ask for a shorter "
                        "--ctx, a smaller --kv-type, or give more by --host-memory",
                        store.n_chunks() * kChunkTokens, bytes, left, arena.limit_bytes()));
    memory_ = arena.reserve(bytes, kWhat);
    thread_ = std::thread([this] { run(); });
}

HostExtents::~HostExtents() {
    {
        const std::scoped_lock lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::int64_t HostExtents::rounds_for(std::int64_t n_chunks) const {
    return ceil_div(std::max<std::int64_t>(std::min(n_chunks, store_->n_chunks()) - first_chunk_, 0), round_chunks_);
}

void HostExtents::ask(std::int64_t n_chunks) {
    const std::int64_t n = rounds_for(n_chunks);
    if (n <= n_asked_) return;
    n_asked_ = n;
    {
        const std::scoped_lock lock(mutex_);
        n_wanted_ = n;
    }
    changed_.notify_all();
}

void HostExtents::wait(std::int64_t n_chunks) {
    const std::int64_t n = rounds_for(n_chunks);
    if (n <= n_there_.load(std::memory_order_acquire)) return;
    ask(n_chunks);
    std::unique_lock lock(mutex_);
    failure_ = nullptr;  // an error of an earlier call must not end this wait
    changed_.notify_all();
    changed_.wait(lock, [&] { return n <= n_there_ || failure_ != nullptr; });
    if (n > n_there_) std::rethrow_exception(failure_);
}

std::byte* HostExtents::chunk(std::int64_t layer, std::int64_t chunk) {
    CHECK(chunk >= store_->resident_chunks(layer) && chunk < store_->n_chunks(), "chunk {} of layer {} on the host",
          chunk, layer);
    wait(chunk + 1);
    return memory_.data() + at_[layer] + store_->place(layer, chunk) * store_->layout(layer).chunk_bytes();
}

// The thread: takes rounds in order, layer by layer, so that it stops soon when requested, and holds locks of the GPU
// driver no longer than one extent takes. A round that failed is tried again when wait() is called.
void HostExtents::run() {
    std::int64_t layer = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stops_ || (n_there_ < n_wanted_ && failure_ == nullptr); });
        if (stops_) return;
        lock.unlock();
        std::exception_ptr failure;
        try {
            bring(n_there_, layer);
            layer = (layer + 1) % store_->n_layers();
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        failure_ = failure;
        if (failure == nullptr && layer == 0) n_there_.fetch_add(1, std::memory_order_release);
        if (failure != nullptr || layer == 0) changed_.notify_all();
    }
}

void HostExtents::bring(std::int64_t round, std::int64_t layer) {
    const std::size_t chunk_bytes = store_->layout(layer).chunk_bytes();
    const std::int64_t first = round * round_chunks_;
    const std::int64_t n = std::min(round_chunks_, n_places(layer) - first);
    if (n <= 0) return;
    const std::size_t bytes = n * chunk_bytes;
    arena_->bring(memory_, at_[layer] + first * chunk_bytes, bytes, kWhat);
    brought_bytes_ += bytes;
}

}  // namespace slipstream
