// Pages of host memory: mapped, made present before they are used, and locked if that is wanted and allowed.
//
// Large mappings are aligned and advised for huge pages. Once huge pages come slowly (free memory is fragmented, and
// the system compacts it first), all later memory gets small pages. The first refused lock is recorded as a message for
// the user; the memory is then kept, pageable. This file does not know which memory belongs to whom (pinned_arena.h
// does).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace slipstream {

enum class PageLock : std::uint8_t { Locked, Pageable };

class HostPages {
public:
    static constexpr std::size_t kPageBytes = 4096;

    /// If `wanted` is Locked, raises the soft limit of locked memory of this process (RLIMIT_MEMLOCK) to the hard
    /// limit.
    explicit HostPages(PageLock wanted);

    /// Maps whole pages for `bytes` and touches none of them. The caller owns them and must pass the same `bytes` to
    /// unmap(). Returns nullptr if the system has no memory for them.
    [[nodiscard]] static std::byte* map(std::size_t bytes);
    /// Maps address space for `bytes` that claims no memory until it is touched. It starts at a multiple of
    /// `alignment`, a multiple of kPageBytes. The caller owns it and must pass the same `bytes` to unmap(). Returns
    /// nullptr if the system has no address space left.
    [[nodiscard]] static std::byte* reserve(std::size_t bytes, std::size_t alignment);
    static void unmap(std::byte* data, std::size_t bytes) noexcept;
    /// Unlocks pages of a reserved range and returns their memory to the system: the contents are lost, the address
    /// space stays.
    static void drop(std::byte* data, std::size_t bytes) noexcept;

    /// Makes the pages of [data, data + bytes) present, then locks them if that is wanted and allowed. Returns whether
    /// they are locked. Keeps their contents. `data` must be at a page boundary. Blocks for 0.1 to 0.3 s per GiB.
    /// Thread-safe.
    PageLock prepare(std::byte* data, std::size_t bytes);
    /// For a reserved range whose memory is touched in parts later: has the system lock each page when it is touched,
    /// if that is wanted and allowed. Returns whether it will. The whole range counts against the limit of locked
    /// memory from now on. `data` must be at a page boundary.
    PageLock lock_on_touch(std::byte* data, std::size_t bytes);
    /// Makes the pages of [data, data + bytes) present and keeps their contents. `data` must be at a page boundary.
    void touch(std::byte* data, std::size_t bytes);

    /// Returns one line about the first refused lock; empty if no lock was refused. The reference is valid as long as
    /// this object, and a line that is not empty does not change.
    [[nodiscard]] const std::string& refusal() const;

private:
    void remember_refusal(std::size_t bytes, int reason);

    PageLock wanted_;
    std::atomic<bool> huge_pages_come_quickly_{true};  // false for good once a step of touch() took too long
    std::atomic<bool> refused_{false};                 // set once, after refusal_ was written
    std::mutex mutex_;                                 // held while refusal_ is written
    std::string refusal_;
};

}  // namespace slipstream
