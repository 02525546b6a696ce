// Page-locked (pinned) host memory under a limit, for weights and KV that do not fit on a device. Copies from pinned
// memory run at full link speed and overlap with the compute stream. On a GPU, copies from pageable memory do neither.
//
// Buffers of 1 MiB or more are mappings of their own: they waste less than a page, can use huge pages, and return their
// memory to the system when they are destroyed. Smaller buffers share a range from which mimalloc allocates
// (small_heap.h), since whole pages for each of them would waste too much.
//
// The system can refuse to lock pages (RLIMIT_MEMLOCK, little memory). Then the memory is pageable, everything works
// but slower, and lock_refusal() states what was requested, what is allowed and what to do. The caller passes it to the
// user.
//
// For a device that does not share the host's memory, pages are registered with the device, which locks them. Then each
// buffer is a mapping of its own, since a copy must not cross from one registered range into another.
//
// Memory that is needed only as a sequence grows is reserved: its addresses and its bytes under the limits are taken at
// once, so that a shortage is reported at once; bring() adds the memory itself in parts.
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

/// Owns bytes of an arena, which must outlive it. Move-only; move assignment swaps the two. 64-byte aligned; the
/// contents are undefined at first. Any thread may destroy it.
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
    std::size_t limit_bytes = 0;            // most bytes that all buffers may have in total
    PageLock page_lock = PageLock::Locked;  // wanted; a buffer is pageable if the system refuses the lock
    Device* device = nullptr;  // copies to and from the buffers; must outlive the arena. Null: a CPU device
    std::function<std::size_t()> available_bytes = {};  // bytes that the system has left; empty: available_host_bytes()
};

class PinnedArena {
public:
    /// Buffers of at least this many bytes are mappings of their own.
    static constexpr std::size_t kMapFromBytes = 1U << 20;

    /// Allocates no memory yet. If locked pages are wanted and no device registers them, raises the soft limit of
    /// locked memory of this process to the hard limit.
    explicit PinnedArena(const PinnedArenaOptions& options);
    /// All buffers must have been destroyed (CHECKed).
    ~PinnedArena();
    PinnedArena(const PinnedArena&) = delete;
    PinnedArena& operator=(const PinnedArena&) = delete;

    /// Returns a buffer of `bytes` (none if 0) whose pages are present (touched), and locked if that is allowed. Throws
    /// OutOfBudget if it exceeds the limit; the message names `what` (the purpose, in words), the bytes requested, the
    /// bytes left of the limit, and the remedy (--host-memory). Throws OutOfBudget also if the system has no more
    /// memory. Thread-safe; several threads touch the pages of large buffers at the same time.
    [[nodiscard]] PinnedBuffer allocate(std::size_t bytes, std::string_view what);

    /// Returns a buffer that has only addresses; bring() adds its memory. All of it counts as used from now on, and
    /// against the limit of locked pages. Throws as allocate() does, also if the system does not have that many bytes
    /// now.
    [[nodiscard]] PinnedBuffer reserve(std::size_t bytes, std::string_view what);
    /// Adds the memory of [from, from + bytes) to a reserved buffer. `from` must be a multiple of HostPages::kPageBytes
    /// and the range inside the buffer (CHECKed); bring each byte only once. If pages are registered, no copy may cross
    /// from one such range into another. Throws OutOfBudget, which names `what`, if the system has no more memory by
    /// now. Blocks for 0.1 to 0.3 s per GiB. Thread-safe.
    void bring(const PinnedBuffer& buffer, std::size_t from, std::size_t bytes, std::string_view what);

    /// Whether pages are registered with a device, which then locks them.
    [[nodiscard]] bool registers() const;

    /// All counts are in bytes as callers requested them. They leave out: up to a page per buffer of kMapFromBytes or
    /// more; the bytes by which mimalloc rounds up smaller buffers (usually an eighth at most) and its own data, 64 KiB
    /// per 32 MiB. The pages of small buffers stay with the arena once they were used.
    [[nodiscard]] std::size_t limit_bytes() const;
    [[nodiscard]] std::size_t used_bytes() const;
    [[nodiscard]] std::size_t peak_bytes() const;
    /// Returns the part of used_bytes() in pages that are locked, or will be once they are touched.
    [[nodiscard]] std::size_t locked_bytes() const;
    /// Returns one line for the user if memory that was to be locked is pageable; empty otherwise.
    [[nodiscard]] std::string lock_refusal() const;

private:
    friend class PinnedBuffer;
    void give_back(const PinnedBuffer& buffer) noexcept;
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace slipstream
