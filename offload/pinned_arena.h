// Page-locked host memory under a budget: where weights and KV live that do not fit on a device. Copies from here run
// at the link's full speed and behind the back of the compute stream; from pageable memory they do neither on a card.
//
// Blocks of a MiB and more are mappings of their own: no waste beyond a page, huge pages, and the memory goes back with
// the block. Smaller ones share a range that mimalloc suballocates (small_heap.h): a page each would be dear there.
//
// Locking can be refused (RLIMIT_MEMLOCK, little memory). Then the memory is pageable, everything works slower, and
// lock_refusal() says what was asked, what was allowed and what to do: the caller tells the user.
//
// For a device that does not share the host's memory the pages are registered with it, which locks them; each block is
// then a mapping of its own, since a copy may not reach from one registered range into another.
//
// What is needed only as a text grows is reserved: its addresses and its share of the limits are taken at once, so that
// what does not fit is told at once; the memory comes in parts.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "offload/host_pages.h"

namespace slipstream {

class Device;
class PinnedArena;

/// Owns bytes of an arena, which must outlive it. Move-only. 64-byte aligned; contents start undefined. May be dropped
/// by any thread.
class PinnedBuffer {
public:
    PinnedBuffer() = default;
    PinnedBuffer(PinnedBuffer&& other) noexcept;
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
    ~PinnedBuffer();
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size_bytes() const { return bytes_; }
    [[nodiscard]] PageLock page_lock() const { return page_lock_; }

private:
    friend class PinnedArena;
    PinnedBuffer(PinnedArena* arena, std::byte* data, std::size_t bytes, PageLock page_lock)
        : arena_(arena), data_(data), bytes_(bytes), page_lock_(page_lock) {}
    PinnedArena* arena_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    PageLock page_lock_ = PageLock::Pageable;
};

struct PinnedArenaOptions {
    std::size_t limit_bytes = 0;            // most that all blocks together may take
    PageLock page_lock = PageLock::Locked;  // what is wanted
    Device* device = nullptr;  // that copies to and from the blocks; outlives the arena. Null: a CPU device
    std::function<std::size_t()> available_bytes = {};  // what the system can still give; empty: it is asked
};

class PinnedArena {
public:
    /// Blocks from here on are mappings of their own.
    static constexpr std::size_t kMapFromBytes = 1U << 20;

    /// Takes no memory yet. Where locked memory is wanted the process's soft limit of it is raised to the hard one.
    explicit PinnedArena(const PinnedArenaOptions& options);
    /// All blocks must be gone (CHECK).
    ~PinnedArena();
    PinnedArena(const PinnedArena&) = delete;
    PinnedArena& operator=(const PinnedArena&) = delete;

    /// A block of `bytes`, in memory that is there (touched) and locked where that is allowed. Throws OutOfBudget,
    /// which names `what`, the bytes asked, the bytes left of the limit, and the remedy (--host-memory); also where the
    /// system itself has no more. Callable from several threads, which then touch their pages at the same time.
    [[nodiscard]] PinnedBuffer allocate(std::size_t bytes, std::string_view what);

    /// A block of which only addresses are there, and the right to the memory: it counts as used, and against the
    /// limit of locked pages. Throws as allocate(), also where the system has not that much now.
    [[nodiscard]] PinnedBuffer reserve(std::size_t bytes, std::string_view what);
    /// Memory behind `bytes` of a reserved block from `from` on, a multiple of kPageBytes; each byte once. Where they
    /// are registered no copy may reach from one such part into another. Throws OutOfBudget where the system has no
    /// more by now. Blocks, 0.1 to 0.3 s a GiB; callable from any thread.
    void bring(const PinnedBuffer& buffer, std::size_t from, std::size_t bytes, std::string_view what);

    /// Whether pages are registered with a device.
    [[nodiscard]] bool registers() const;

    /// All counts are of bytes as callers asked for them. Not counted: up to a page for each block of kMapFromBytes or
    /// more, and what mimalloc rounds smaller ones up by (an eighth at most, as a rule) with its own bookkeeping, 64
    /// KiB for each 32 MiB. Small blocks' pages stay with the arena once they were used.
    [[nodiscard]] std::size_t limit_bytes() const;
    [[nodiscard]] std::size_t used_bytes() const;
    [[nodiscard]] std::size_t peak_bytes() const;
    /// Of used_bytes(), in locked pages.
    [[nodiscard]] std::size_t locked_bytes() const;
    /// One line where memory that was to be locked is pageable; empty otherwise.
    [[nodiscard]] std::string lock_refusal() const;

private:
    friend class PinnedBuffer;
    void give_back(const PinnedBuffer& buffer) noexcept;
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace slipstream
