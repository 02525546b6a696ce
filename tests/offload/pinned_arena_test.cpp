// PinnedArena: the limit to the byte, blocks of all sizes that stay apart, memory that is there and locked, refusals of
// the system in words, any number of arenas and threads.
#include "offload/pinned_arena.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = 1U << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kNoLocks = "sanitizers replace mlock by a call that does nothing";
#else
constexpr const char* kNoLocks = nullptr;
#endif

// Of /proc/self/status, in bytes.
std::size_t process_bytes(const std::string& key) {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.starts_with(key + ":")) return std::stoul(line.substr(key.size() + 1)) * 1024;
    ADD_FAILURE() << "no " << key << " in /proc/self/status";
    return 0;
}

// Whether every page under the block is in memory.
bool all_present(const PinnedBuffer& block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block.data());
    const std::uintptr_t begin = address / HostPages::kPageBytes * HostPages::kPageBytes;
    const std::size_t bytes = address + block.size_bytes() - begin;
    std::vector<unsigned char> pages((bytes + HostPages::kPageBytes - 1) / HostPages::kPageBytes);
    if (mincore(reinterpret_cast<void*>(begin), bytes, pages.data()) != 0) return false;
    return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(PinnedArena, HonoursItsLimitToTheByteAndCounts) {
    PinnedArena arena({.limit_bytes = 3 * kMiB, .page_lock = PageLock::Pageable});
    EXPECT_EQ(arena.limit_bytes(), 3 * kMiB);
    {
        const PinnedBuffer first = arena.allocate(2 * kMiB - 1, "packs");
        const PinnedBuffer second = arena.allocate(1000, "norms");
        EXPECT_EQ(arena.used_bytes(), 2 * kMiB + 999);
        EXPECT_EQ(
            error_text<OutOfBudget>([&] { static_cast<void>(arena.allocate(kMiB - 998, "layer 7")); }),
            "host memory: layer 7 needs 1.0 MiB, but only 1.0 MiB of 3.0 MiB are left; use a larger --host-memory, a "
            "shorter --ctx or a smaller model");
        const PinnedBuffer rest = arena.allocate(kMiB - 999, "layer 7");
        EXPECT_EQ(arena.used_bytes(), arena.limit_bytes());
        EXPECT_THROW(static_cast<void>(arena.allocate(1, "one more")), OutOfBudget);
    }
    EXPECT_EQ(arena.used_bytes(), 0U);
    EXPECT_EQ(arena.peak_bytes(), 3 * kMiB);
    EXPECT_EQ(arena.locked_bytes(), 0U);
    EXPECT_EQ(arena.lock_refusal(), "");
}

TEST(PinnedArena, ABlockMovesAndAnEmptyOneIsNothing) {
    PinnedArena arena({.limit_bytes = kMiB, .page_lock = PageLock::Pageable});
    PinnedBuffer first = arena.allocate(1000, "a");
    std::byte* data = first.data();
    PinnedBuffer second = std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_EQ(arena.used_bytes(), 1000U);
    second = arena.allocate(10, "b");
    first = PinnedBuffer();
    EXPECT_EQ(second.size_bytes(), 10U);
    const PinnedBuffer empty = arena.allocate(0, "nothing");
    EXPECT_EQ(empty.size_bytes(), 0U);
}

TEST(PinnedArena, MemoryIsThereAndLockedWhereAllowedAndGoesBackWithTheBlock) {
    PinnedArena arena({.limit_bytes = 200 * kMiB});
    const std::size_t locked_before = process_bytes("VmLck");
    std::size_t expected = 0;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{70000}, kMiB, 5 * kMiB + 3, 64 * kMiB}) {
        const PinnedBuffer block = arena.allocate(bytes, "block");
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0U);
        EXPECT_TRUE(all_present(block)) << bytes;
        expected = block.page_lock() == PageLock::Locked ? bytes : 0;
        EXPECT_EQ(arena.locked_bytes(), expected);
        if (kNoLocks == nullptr) {
            EXPECT_GE(process_bytes("VmLck"), locked_before + expected);
        }
        EXPECT_EQ(block.page_lock() == PageLock::Pageable, !arena.lock_refusal().empty()) << bytes;
        if (!arena.lock_refusal().empty()) break;  // smaller ones may still be locked; see the test of refusals
    }
    EXPECT_EQ(arena.locked_bytes(), 0U);
    EXPECT_LT(process_bytes("VmLck"), locked_before + kMiB);  // pages of small blocks stay
}

TEST(PinnedArena, OfAReservedBlockMemoryComesInPartsAndIsLockedAsItComes) {
    PinnedArena arena({.limit_bytes = 100 * kMiB});
    const std::size_t locked_before = process_bytes("VmLck");
    const std::size_t resident_before = process_bytes("VmRSS");
    const auto resident = [&] { return process_bytes("VmRSS") - std::min(process_bytes("VmRSS"), resident_before); };
    {
        const PinnedBuffer block = arena.reserve(90 * kMiB + 5, "KV");
        EXPECT_EQ(arena.used_bytes(), 90 * kMiB + 5);
        EXPECT_EQ(arena.locked_bytes(), block.page_lock() == PageLock::Locked ? 90 * kMiB + 5 : 0);
        EXPECT_EQ(block.page_lock() == PageLock::Pageable, !arena.lock_refusal().empty());
        EXPECT_LT(resident(), 4 * kMiB);
        arena.bring(block, 0, 30 * kMiB, "KV");
        EXPECT_GE(resident(), 29 * kMiB);
        EXPECT_LT(resident(), 40 * kMiB);
        arena.bring(block, 60 * kMiB, 30 * kMiB + 5, "KV");
        EXPECT_GE(resident(), 59 * kMiB);
        EXPECT_LT(resident(), 70 * kMiB);
        arena.bring(block, 30 * kMiB, 30 * kMiB, "KV");
        EXPECT_TRUE(all_present(block));
        if (block.page_lock() == PageLock::Locked) {
            EXPECT_GE(process_bytes("VmLck"), locked_before + 90 * kMiB);
        }
        EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(arena.reserve(10 * kMiB, "layer 7")); }),
                    HasSubstr("layer 7 needs 10.0 MiB, but only 10.0 MiB of"));
        EXPECT_DEATH(arena.bring(block, 4096, 90 * kMiB, "KV"), "94371840 bytes from 4096 of 94371845");
    }
    EXPECT_EQ(arena.used_bytes(), 0U);
    EXPECT_EQ(arena.locked_bytes(), 0U);
    EXPECT_EQ(process_bytes("VmLck"), locked_before);
    EXPECT_LT(resident(), 4 * kMiB);
}

TEST(PinnedArena, WhatTheSystemHasNotIsToldWhenItIsReservedOrWhenItIsBrought) {
    std::size_t available = 50 * kMiB;
    PinnedArena arena(
        {.limit_bytes = 100 * kMiB, .page_lock = PageLock::Pageable, .available_bytes = [&] { return available; }});
    EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(arena.reserve(50 * kMiB + 1, "KV")); }),
                HasSubstr("the system does not have 50.0 MiB for KV, in addition to 0 bytes in use here"));
    const PinnedBuffer block = arena.reserve(50 * kMiB, "KV");
    available = 1 * kMiB;
    EXPECT_THAT(error_text<OutOfBudget>([&] { arena.bring(block, 0, 2 * kMiB, "KV"); }),
                HasSubstr("the system does not have 2.0 MiB for KV, in addition to 50.0 MiB in use here"));
    EXPECT_EQ(arena.used_bytes(), 50 * kMiB);
    available = 2 * kMiB;
    arena.bring(block, 0, 2 * kMiB, "KV");
}

TEST(PinnedArena, BlocksOfAllSizesStayApartThroughRandomTraces) {
    for (const unsigned seed : {1U, 2U, 3U}) {
        SCOPED_TRACE(seed);
        std::mt19937 rng(seed);
        const std::size_t limit = 24 * kMiB;
        PinnedArena arena({.limit_bytes = limit, .page_lock = PageLock::Pageable});
        struct Held {
            PinnedBuffer block;
            unsigned char mark;
        };
        std::vector<Held> held;
        std::size_t used = 0;
        int n_refused = 0;
        for (int step = 0; step < 3000; ++step) {
            if (!held.empty() && rng() % 5 < 2) {
                std::swap(held[rng() % held.size()], held.back());
                const Held& gone = held.back();
                for (std::size_t i = 0; i < gone.block.size_bytes(); i += 61)
                    ASSERT_EQ(static_cast<unsigned char>(gone.block.data()[i]), gone.mark) << "step " << step;
                used -= gone.block.size_bytes();
                held.pop_back();
                continue;
            }
            const std::size_t bytes = 1 + rng() % (std::size_t{1} << (rng() % 22));
            if (used + bytes > limit) {
                ++n_refused;
                ASSERT_THROW(static_cast<void>(arena.allocate(bytes, "x")), OutOfBudget);
                continue;
            }
            Held next{arena.allocate(bytes, "x"), static_cast<unsigned char>(step)};
            std::memset(next.block.data(), next.mark, bytes);
            used += bytes;
            held.push_back(std::move(next));
            ASSERT_EQ(arena.used_bytes(), used);
        }
        EXPECT_GT(n_refused, 0);
    }
}

TEST(PinnedArena, SmallBlocksAreDenseAndMoreOfThemThanARangeHoldsAreServed) {
    PinnedArena arena({.limit_bytes = 400 * kMiB, .page_lock = PageLock::Pageable});
    std::vector<PinnedBuffer> blocks;
    const std::size_t before = process_bytes("VmRSS");
    for (int i = 0; i < 20000; ++i) blocks.push_back(arena.allocate(1024, "small"));
    EXPECT_LT(process_bytes("VmRSS"), before + 30 * kMiB);  // 19.5 MiB of blocks
    blocks.clear();
    for (int i = 0; i < 600; ++i) blocks.push_back(arena.allocate(500000, "half a MiB"));  // 286 MiB
    for (const PinnedBuffer& block : blocks) block.data()[499999] = std::byte{1};
    EXPECT_EQ(arena.used_bytes(), 300000000U);
}

TEST(PinnedArena, ThreadsShareItAndMayEndBeforeTheirBlocks) {
    PinnedArena arena({.limit_bytes = 64 * kMiB, .page_lock = PageLock::Pageable});
    std::vector<std::vector<PinnedBuffer>> of_thread(4);
    const auto work = [&](std::size_t thread) {
        std::mt19937 rng(static_cast<unsigned>(thread));
        for (int i = 0; i < 200; ++i) {
            PinnedBuffer block = arena.allocate(1 + rng() % 20000, "x");
            std::memset(block.data(), static_cast<int>(thread), block.size_bytes());
            if (rng() % 3 != 0) of_thread[thread].push_back(std::move(block));
        }
        of_thread[thread].push_back(arena.allocate(2 * kMiB, "large"));
        std::memset(of_thread[thread].back().data(), static_cast<int>(thread), 2 * kMiB);
    };
    for (int round = 0; round < 2; ++round) {  // the second reuses what ended threads gave back
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < of_thread.size(); ++t) threads.emplace_back(work, t);
        for (std::thread& thread : threads) thread.join();
        for (std::size_t t = 0; t < of_thread.size(); ++t) {
            for (const PinnedBuffer& block : of_thread[t])
                for (std::size_t i = 0; i < block.size_bytes(); ++i)
                    ASSERT_EQ(static_cast<std::size_t>(block.data()[i]), t);
            of_thread[t].clear();
        }
        EXPECT_EQ(arena.used_bytes(), 0U);
    }
}

TEST(PinnedArena, AnyNumberOfArenasAtOnceAndOneAfterTheOther) {
    std::vector<std::unique_ptr<PinnedArena>> arenas;
    std::vector<PinnedBuffer> blocks;
    for (int i = 0; i < 70; ++i) {  // mimalloc has 64
        arenas.push_back(std::make_unique<PinnedArena>(PinnedArenaOptions{kMiB, PageLock::Pageable}));
        blocks.push_back(arenas.back()->allocate(5000, "x"));
        std::memset(blocks.back().data(), i, 5000);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t k = 0; k < 5000; ++k) ASSERT_EQ(static_cast<std::size_t>(blocks[i].data()[k]), i);
    blocks.clear();
    arenas.clear();
    for (int i = 0; i < 200; ++i) {
        PinnedArena arena({.limit_bytes = kMiB, .page_lock = PageLock::Pageable});
        std::vector<PinnedBuffer> some;
        for (std::size_t k = 1; k <= 20; ++k) {
            some.push_back(arena.allocate(k * 1500, "x"));
            std::memset(some.back().data(), static_cast<int>(k), k * 1500);
        }
        for (std::size_t k = 1; k <= 20; ++k)
            for (std::size_t at = 0; at < k * 1500; ++at)
                ASSERT_EQ(static_cast<std::size_t>(some[k - 1].data()[at]), k);
    }
}

TEST(PinnedArena, LeavesTheProgramItsOwnMalloc) {
    Dl_info info{};
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info), 0);
    EXPECT_THAT(info.dli_fname, testing::Not(HasSubstr("mimalloc")));
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "_Znwm"), &info), 0);
    EXPECT_THAT(info.dli_fname, testing::Not(HasSubstr("mimalloc")));
}

// In a process of its own: takes away the right to lock more than `bytes`.
void limit_locked_memory(rlim_t soft_bytes, rlim_t hard_bytes) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (syscall(SYS_capget, &header, data) != 0) std::exit(10);
    data[0].effective &= ~(1U << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, data) != 0) std::exit(11);
    const rlimit limit{.rlim_cur = soft_bytes, .rlim_max = hard_bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) std::exit(12);
}

// Exits with 3 and the message where a refused lock is told and the memory serves all the same.
[[noreturn]] void allocate_more_than_may_be_locked() {
    limit_locked_memory(100000, kMiB);
    PinnedArena arena({.limit_bytes = 100 * kMiB});
    const PinnedBuffer small = arena.allocate(500000, "fits the hard limit");
    if (small.page_lock() != PageLock::Locked || !arena.lock_refusal().empty()) std::exit(20);
    const PinnedBuffer large = arena.allocate(4 * kMiB, "does not");
    const PinnedBuffer larger = arena.allocate(8 * kMiB, "nor this");
    std::memset(large.data(), 1, large.size_bytes());
    if (large.page_lock() != PageLock::Pageable || !all_present(large) || !all_present(larger)) std::exit(21);
    if (arena.locked_bytes() != 500000 || arena.used_bytes() != 500000 + 12 * kMiB) std::exit(22);
    const PinnedBuffer reserved = arena.reserve(2 * kMiB, "told before it comes");
    if (reserved.page_lock() != PageLock::Pageable || arena.locked_bytes() != 500000) std::exit(24);
    arena.bring(reserved, 0, kMiB, "it");
    const PinnedBuffer small_again = arena.allocate(300000, "fits once more");
    if (small_again.page_lock() != PageLock::Locked) std::exit(23);
    std::fprintf(stderr, "%s\n", arena.lock_refusal().c_str());
    std::exit(3);
}

TEST(PinnedArenaDeathTest, ARefusedLockIsToldOnceAndTheMemoryIsPageable) {
    if (kNoLocks != nullptr) GTEST_SKIP() << kNoLocks;
    EXPECT_EXIT(allocate_more_than_may_be_locked(), testing::ExitedWithCode(3),
                "pageable, not pinned.* did not lock 4194304 more bytes .*limit of locked memory: 1048576 "
                "bytes.*ulimit -l unlimited");
}

[[noreturn]] void lock_nothing_where_nothing_may_be() {
    limit_locked_memory(0, 0);
    PinnedArena arena({.limit_bytes = 100 * kMiB});
    const PinnedBuffer small = arena.allocate(1, "x");
    const PinnedBuffer large = arena.allocate(2 * kMiB, "x");
    *small.data() = std::byte{1};
    large.data()[2 * kMiB - 1] = std::byte{1};
    std::fprintf(stderr, "%s\n", arena.lock_refusal().c_str());
    std::exit(arena.locked_bytes() == 0 ? 3 : 4);
}

TEST(PinnedArenaDeathTest, ALimitOfNothingStillServes) {
    if (kNoLocks != nullptr) GTEST_SKIP() << kNoLocks;
    EXPECT_EXIT(lock_nothing_where_nothing_may_be(), testing::ExitedWithCode(3), "did not lock 4096 more bytes");
}

TEST(PinnedArena, WhatTheSystemDoesNotHaveIsAnErrorThatSaysSo) {
    PinnedArena arena({.limit_bytes = std::numeric_limits<std::size_t>::max(), .page_lock = PageLock::Pageable});
    for (const std::size_t bytes : {std::size_t{1} << 50, std::numeric_limits<std::size_t>::max()})
        EXPECT_THAT(
            error_text<OutOfBudget>([&] { static_cast<void>(arena.allocate(bytes, "KV")); }),
            testing::AllOf(HasSubstr("the system does not have"), HasSubstr("for KV"), HasSubstr("close other")));
    EXPECT_EQ(arena.used_bytes(), 0U);
    EXPECT_EQ(arena.peak_bytes(), 0U);
    EXPECT_NO_THROW(static_cast<void>(arena.allocate(2 * kMiB, "KV")));
}

TEST(PinnedArenaDeathTest, LittleAddressSpaceIsAnErrorNotACrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
    const auto starve = [] {
        const std::size_t now = process_bytes("VmSize");
        const rlimit little{.rlim_cur = now + 40 * kMiB, .rlim_max = now + 40 * kMiB};
        if (setrlimit(RLIMIT_AS, &little) != 0) std::exit(1);
        PinnedArena arena({.limit_bytes = 1000 * kMiB});
        const PinnedBuffer small = arena.allocate(1000, "without a range for small blocks");
        *small.data() = std::byte{1};
        try {
            static_cast<void>(arena.allocate(100 * kMiB, "packs"));
        } catch (const OutOfBudget& error) {
            std::fprintf(stderr, "%s", error.what());
            std::exit(arena.used_bytes() == 1000 ? 3 : 4);
        }
        std::exit(2);
    };
    EXPECT_EXIT(starve(), testing::ExitedWithCode(3), "the system does not have 100 MiB for packs");
}

TEST(PinnedArenaDeathTest, BlocksMustNotOutliveIt) {
    EXPECT_DEATH(
        {
            PinnedBuffer block;
            PinnedArena arena({.limit_bytes = kMiB, .page_lock = PageLock::Pageable});
            block = arena.allocate(7, "x");
        },
        "7 bytes of host memory outlive their arena");
}

}  // namespace
}  // namespace slipstream
