// Page-locked memory of a KV cache for the chunks that stream. Addresses for the whole context are reserved at the
// start, so that a context which does not fit is told then; memory comes behind them on a thread, ahead of the text:
// extent by extent where a card registers it, else chunk by chunk. So a short text takes little, and generating waits
// for no page to be locked.
#pragma once

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
    /// Reserves `arena`'s memory for all chunks of `store` that are not resident. Both outlive this. Throws
    /// OutOfBudget.
    HostExtents(PinnedArena& arena, const DeviceKv& store);
    ~HostExtents();
    HostExtents(const HostExtents&) = delete;
    HostExtents& operator=(const HostExtents&) = delete;

    /// Memory of all layers' chunks below `n_chunks` is wanted soon.
    void ask(std::int64_t n_chunks);
    /// Waits until it is there. Throws what keeps it from coming (OutOfBudget).
    void wait(std::int64_t n_chunks);

    /// Of all layers, there by now.
    [[nodiscard]] std::size_t brought_bytes() const { return brought_bytes_; }

    /// A chunk of a layer that is not resident there, once there is memory behind it. Those of a layer lie behind one
    /// another.
    [[nodiscard]] std::byte* chunk(std::int64_t layer, std::int64_t chunk);
    /// No copy may reach from one extent of a layer into another: the end of the one that holds `chunk`.
    [[nodiscard]] std::int64_t end_of_extent(std::int64_t layer, std::int64_t chunk) const {
        const std::int64_t resident = store_->resident_chunks(layer);
        return resident + ((chunk - resident) / kChunksPerExtent + 1) * kChunksPerExtent;
    }

private:
    [[nodiscard]] std::int64_t rounds_for(std::int64_t n_chunks) const;
    void run();
    void bring(std::int64_t round, std::int64_t layer);

    PinnedArena* arena_;
    const DeviceKv* store_;
    std::vector<std::size_t> at_;  // [n_layers]: where a layer's first chunk lies
    PinnedBuffer memory_;
    std::int64_t first_chunk_;   // that streams in any layer
    std::int64_t round_chunks_;  // in a round each layer gets memory for its next ones
    std::int64_t n_asked_ = 0;   // rounds
    std::atomic<std::int64_t> n_there_{0};
    std::atomic<std::size_t> brought_bytes_{0};

    std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::int64_t n_wanted_ = 0;  // n_asked_, for the thread
    bool stops_ = false;
    std::exception_ptr failure_;  // of the round that was tried last; until somebody waits for it none is tried
    std::thread thread_;          // last: starts when all above is made
};

}  // namespace slipstream
