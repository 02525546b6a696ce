#include "offload/host_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

constexpr std::size_t kHugePageBytes = 2U << 20;
constexpr std::size_t kHugeFromBytes = 2 * kHugePageBytes;  // smaller mappings gain nothing from huge pages
// Memory is touched in steps of 32 MiB; the time of each step shows whether huge pages still come quickly. Measured on
// a busy virtual machine, CPU time for 32 MiB: 4 ms in huge pages, 9 ms in small pages, 60 to 100 ms in huge pages once
// free memory is fragmented, which begins in the middle of a large buffer as well as before it.
constexpr std::size_t kPieceBytes = 16 * kHugePageBytes;
// A step that takes more CPU time than this per byte is the last one with huge pages: 13 ms for 32 MiB.
constexpr double kMaxSecondsAByte = 13e-3 / static_cast<double>(kPieceBytes);

// Returns the CPU time of this thread in seconds, its time in the kernel included; other programs do not change it.
double thread_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void touch_piece(std::byte* data, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
    for (std::size_t at = 0; at < bytes; at += HostPages::kPageBytes) {
        volatile std::byte* page = data + at;
        *page = *page;
    }
}

// Maps `bytes` (whole pages) at a multiple of `alignment`: maps more, then unmaps both ends. Returns nullptr if the
// system refuses.
std::byte* map_aligned(std::size_t bytes, std::size_t alignment, int extra_flags) {
    const std::size_t slack = alignment - HostPages::kPageBytes;
    const auto with_slack = checked_add(bytes, slack);
    if (!with_slack) return nullptr;
    void* mapped =
        ::mmap(nullptr, *with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* data = static_cast<std::byte*>(mapped);
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    const std::size_t before = round_up(address, std::uintptr_t{alignment}) - address;
    if (before > 0) ::munmap(data, before);
    if (slack > before) ::munmap(data + before + bytes, slack - before);
    return data + before;
}

std::string lock_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
    if (limit.rlim_cur == RLIM_INFINITY) return "none";
    return fmt::format("{} bytes", limit.rlim_cur);
}

}  // namespace

HostPages::HostPages(PageLock wanted) : wanted_(wanted) {
    rlimit limit{};
    if (wanted == PageLock::Locked && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_MEMLOCK, &limit);  // if this fails, a refused lock reports the limit later
    }
}

std::byte* HostPages::map(std::size_t bytes) {
    if (!checked_add(bytes, kPageBytes)) return nullptr;
    // No MAP_NORESERVE: the system then refuses at once a mapping that it can never back, instead of killing this
    // process when the pages are touched.
    return map_aligned(round_up(bytes, kPageBytes), bytes >= kHugeFromBytes ? kHugePageBytes : kPageBytes, 0);
}

std::byte* HostPages::reserve(std::size_t bytes, std::size_t alignment) {
    if (!checked_add(bytes, kPageBytes)) return nullptr;
    bytes = round_up(bytes, kPageBytes);
    std::byte* data = map_aligned(bytes, alignment, MAP_NORESERVE);
    // Callers touch single pages far apart; with huge pages, each of them would take 2 MiB.
    if (data != nullptr) ::madvise(data, bytes, MADV_NOHUGEPAGE);
    return data;
}

void HostPages::unmap(std::byte* data, std::size_t bytes) noexcept {
    ::munmap(data, round_up(bytes, kPageBytes));
}

void HostPages::drop(std::byte* data, std::size_t bytes) noexcept {
    ::munlock(data, bytes);  // the system does not take locked pages back
    ::madvise(data, bytes, MADV_DONTNEED);
}

void HostPages::touch(std::byte* data, std::size_t bytes) {
    if (bytes < kHugeFromBytes) return touch_piece(data, bytes);
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
        const std::size_t piece = std::min(kPieceBytes, bytes - at);
        const bool huge = huge_pages_come_quickly_;
        // Advised both ways: without advice, the system's settings decide whether a mapping gets huge pages.
        ::madvise(data + at, piece, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        const double began = thread_seconds();
        touch_piece(data + at, piece);
        if (huge && thread_seconds() - began > kMaxSecondsAByte * static_cast<double>(piece))
            huge_pages_come_quickly_ = false;
    }
}

PageLock HostPages::prepare(std::byte* data, std::size_t bytes) {
    bytes = round_up(bytes, kPageBytes);
    // Makes the system provide the pages. This is not left to mlock(), which can be refused and does nothing under a
    // sanitizer.
    touch(data, bytes);
    if (wanted_ == PageLock::Pageable) return PageLock::Pageable;
    if (::mlock(data, bytes) == 0) return PageLock::Locked;
    remember_refusal(bytes, errno);
    ::munlock(data, bytes);  // mlock() may have locked a part
    return PageLock::Pageable;
}

PageLock HostPages::lock_on_touch(std::byte* data, std::size_t bytes) {
    if (wanted_ == PageLock::Pageable) return PageLock::Pageable;
    bytes = round_up(bytes, kPageBytes);
    if (::mlock2(data, bytes, MLOCK_ONFAULT) == 0) return PageLock::Locked;
    remember_refusal(bytes, errno);
    ::munlock(data, bytes);  // mlock2() may have locked a part
    return PageLock::Pageable;
}

void HostPages::remember_refusal(std::size_t bytes, int reason) {
    const std::scoped_lock lock(mutex_);
    if (refused_) return;
    refusal_ = fmt::format(
        "host memory is pageable, not pinned, so copies from it are slower: the system did not lock {} more bytes ({}; "
        "limit of locked memory: {}); raise the limit by `ulimit -l unlimited` or a memlock line in "
        "/etc/security/limits.conf",
        bytes, std::strerror(reason), lock_limit());
    refused_ = true;
}

const std::string& HostPages::refusal() const {
    static const std::string kNone;
    return refused_ ? refusal_ : kNone;
}

}  // namespace slipstream
