// HostExtents: page-locked host memory of a KV cache, for the chunks that stream. Addresses for the whole context are
// reserved at the start, so that a context that does not fit is refused then. A thread backs them with locked memory,
// ahead of the text: extent by extent if a GPU registers the memory, else chunk by chunk. So a short text takes little
// memory, and generation does not wait for pages to be locked.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/cache/device_kv.h"

namespace slipstream {

class HostExtents {
public:
    /// Reserves memory of `arena` for all KV chunks that `store` keeps and that are not resident. Both must outlive
    /// this object. Throws OutOfBudget.
    HostExtents(PinnedArena& arena, const DeviceKv& store);
    ~HostExtents();
    HostExtents(const HostExtents&) = delete;
    HostExtents& operator=(const HostExtents&) = delete;

    /// Requests memory for the KV chunks below `n_chunks` of all layers; does not wait.
    void ask(std::int64_t n_chunks);
    /// Waits until there is memory for the KV chunks below `n_chunks` of all layers. Throws the error if it cannot be
    /// had (OutOfBudget).
    void wait(std::int64_t n_chunks);

    /// Returns the bytes of memory that are locked so far, for all layers.
    [[nodiscard]] std::size_t brought_bytes() const { return brought_bytes_; }

    /// Returns the address of a KV chunk that is not resident in its layer; waits for its memory. The KV chunks of a
    /// layer are contiguous up to end_of_extent(). In a ring, KV chunks that take each other's place have the same
    /// address.
    [[nodiscard]] std::byte* chunk(std::int64_t layer, std::int64_t chunk);
    /// Returns the end of the extent that holds the KV chunk `chunk`, as a number of a KV chunk. A copy must not cross
    /// the end of an extent.
    [[nodiscard]] std::int64_t end_of_extent(std::int64_t layer, std::int64_t chunk) const {
        const std::int64_t place = store_->place(layer, chunk);
        return chunk - place + std::min((place / kChunksPerExtent + 1) * kChunksPerExtent, n_places(layer));
    }

private:
    /// Returns how many KV chunks of a layer have a place in this memory.
    [[nodiscard]] std::int64_t n_places(std::int64_t layer) const {
        return store_->kept_chunks(layer) - std::min(store_->resident_chunks(layer), store_->kept_chunks(layer));
    }
    [[nodiscard]] std::int64_t rounds_for(std::int64_t n_chunks) const;
    void run();
    void bring(std::int64_t round, std::int64_t layer);

    PinnedArena* arena_;
    const DeviceKv* store_;
    std::vector<std::size_t> at_;  // [n_layers]: offset of the layer's first place, in bytes
    PinnedBuffer memory_;
    std::int64_t first_chunk_;   // first KV chunk that streams in any layer
    std::int64_t round_chunks_;  // KV chunks of each layer that get memory in one round
    std::int64_t n_asked_ = 0;   // requested rounds
    std::atomic<std::int64_t> n_there_{0};
    std::atomic<std::size_t> brought_bytes_{0};

    std::mutex mutex_;  // guards the following members
    std::condition_variable changed_;
    std::int64_t n_wanted_ = 0;  // copy of n_asked_ for the thread
    bool stops_ = false;
    std::exception_ptr failure_;  // error of the last round that was tried; no round is tried until wait() clears it
    std::thread thread_;          // last: it starts when all other members exist
};

}  // namespace slipstream
