// Pages of host memory: mapped, there before they are used, and locked where that is wanted and allowed.
//
// Large mappings are aligned and advised for huge pages; once these come slowly (fragmented memory, which the system
// tidies up first) all that follows goes to small ones. A lock that is refused is remembered once, in words for the
// user; the memory stays, pageable. What belongs to whom is the arena's business (pinned_arena.h).
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

    /// Where locked pages are `wanted`, raises this process's soft limit of locked memory to its hard one.
    explicit HostPages(PageLock wanted);

    /// Pages for `bytes`, which are theirs from now on: unmap() with the same number. nullptr where the system has
    /// none. Nothing is touched yet.
    [[nodiscard]] static std::byte* map(std::size_t bytes);
    /// Address space for `bytes`, aligned to `alignment`, that claims no memory before it is touched. nullptr where the
    /// system has none.
    [[nodiscard]] static std::byte* reserve(std::size_t bytes, std::size_t alignment);
    static void unmap(std::byte* data, std::size_t bytes) noexcept;
    /// Unlocks pages of a reserved range and gives their memory back; the address space stays.
    static void drop(std::byte* data, std::size_t bytes) noexcept;

    /// Makes the pages of [data, data + bytes) present and locks them, where wanted and allowed; says which. Blocks:
    /// 0.1 to 0.3 s a GiB. `data` is at a page border. Contents stay. Callable from several threads at once.
    PageLock prepare(std::byte* data, std::size_t bytes);
    /// The same in two steps, for a reserved range whose memory comes in parts: its pages are locked once they are
    /// touched, where wanted and allowed (the whole range counts against the limit from now on); says which.
    PageLock lock_on_touch(std::byte* data, std::size_t bytes);
    /// Makes pages present.
    void touch(std::byte* data, std::size_t bytes);

    /// One line about the first refused lock; empty where none was. The reference stays good.
    [[nodiscard]] const std::string& refusal() const;

private:
    void remember_refusal(std::size_t bytes, int reason);

    PageLock wanted_;
    std::atomic<bool> huge_pages_come_quickly_{true};  // until a piece of memory finds otherwise
    std::atomic<bool> refused_{false};                 // set once, after refusal_ is written
    std::mutex mutex_;
    std::string refusal_;
};

}  // namespace slipstream
