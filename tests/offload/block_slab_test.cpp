// BlockSlab: blocks apart and aligned, used again, groups that stay near what is taken, budgets used to the last block.
#include "offload/block_slab.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"

namespace slipstream {
namespace {

constexpr std::size_t kMiB = 1U << 20;

PinnedArenaOptions pageable(std::size_t limit_bytes) {
    return {.limit_bytes = limit_bytes, .page_lock = PageLock::Pageable};
}

TEST(BlockSlab, BlocksStayApartThroughRandomTraces) {
    for (const std::size_t block_bytes : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{70000}}) {
        SCOPED_TRACE(block_bytes);
        PinnedArena arena(pageable(64 * kMiB));
        BlockSlab slab(arena, block_bytes, 500, "extents");
        std::mt19937 rng(static_cast<unsigned>(block_bytes));
        struct Held {
            std::byte* block;
            std::byte mark;
        };
        std::vector<Held> held;
        for (int step = 0; step < 4000; ++step) {
            if (!held.empty() && (held.size() == 500 || rng() % 7 < 3)) {
                std::swap(held[rng() % held.size()], held.back());
                const auto [block, mark] = held.back();
                ASSERT_TRUE(std::all_of(block, block + block_bytes, [mark = mark](std::byte b) { return b == mark; }));
                slab.give_back(block);
                held.pop_back();
            } else {
                std::byte* block = slab.take();
                ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
                held.push_back({block, static_cast<std::byte>(step)});
                std::memset(block, step & 0xFF, block_bytes);
            }
            ASSERT_EQ(slab.n_taken(), std::ssize(held));
        }
        EXPECT_EQ(slab.block_bytes(), block_bytes);
    }
}

TEST(BlockSlab, WhatIsGivenBackIsUsedAgainFirst) {
    PinnedArena arena(pageable(kMiB));
    BlockSlab slab(arena, 1000, 100, "extents");
    std::byte* first = slab.take();
    std::byte* second = slab.take();
    const std::size_t used = arena.used_bytes();
    slab.give_back(first);
    EXPECT_EQ(slab.n_taken(), 1);
    EXPECT_EQ(slab.take(), first);
    slab.give_back(second);
    slab.give_back(first);
    EXPECT_EQ(slab.take(), first);
    EXPECT_EQ(arena.used_bytes(), used);
}

TEST(BlockSlab, HoldsLittleMoreThanIsTaken) {
    PinnedArena arena(pageable(1000 * kMiB));
    BlockSlab slab(arena, 1000, 100000, "extents");
    EXPECT_EQ(arena.used_bytes(), 0U);
    std::int64_t n_groups = 0;
    for (std::int64_t n = 1; n <= 20000; ++n) {
        const std::int64_t held_before = slab.n_held();
        static_cast<void>(slab.take());
        n_groups += slab.n_held() != held_before ? 1 : 0;
        ASSERT_GE(slab.n_held(), n);
        ASSERT_LE(slab.n_held(), n + n / 16);
        ASSERT_LE(arena.used_bytes(), static_cast<std::size_t>(slab.n_held()) * 1024);
    }
    EXPECT_LT(n_groups, 150);
}

TEST(BlockSlab, AGroupIsNeverLargerThan16MiB) {
    PinnedArena arena(pageable(2000 * kMiB));
    BlockSlab slab(arena, 6 * kMiB, 100, "extents");
    for (int n = 0; n < 50; ++n) {
        static_cast<void>(slab.take());
        ASSERT_LE(slab.n_held(), n + 2);
    }
}

TEST(BlockSlab, UsesABudgetToItsLastBlock) {
    const std::int64_t n_blocks = 777;
    PinnedArena arena(pageable(n_blocks * 1024));
    BlockSlab slab(arena, 1024, 100000, "extents of KV");
    std::set<std::byte*> taken;
    for (std::int64_t n = 0; n < n_blocks; ++n) taken.insert(slab.take());
    EXPECT_EQ(std::ssize(taken), n_blocks);
    EXPECT_EQ(arena.used_bytes(), arena.limit_bytes());
    EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(slab.take()); }),
                testing::HasSubstr("extents of KV needs 1024 bytes, 0 of 795648 are left"));
    slab.give_back(*taken.begin());  // and goes on
    EXPECT_EQ(slab.take(), *taken.begin());
}

TEST(BlockSlab, HasAMostNumberOfBlocks) {
    PinnedArena arena(pageable(kMiB));
    BlockSlab slab(arena, 10, 3, "extents");
    for (int n = 0; n < 3; ++n) static_cast<void>(slab.take());
    EXPECT_EQ(error_text<OutOfBudget>([&] { static_cast<void>(slab.take()); }),
              "host memory: all 3 blocks of extents are taken; ask for a shorter context");
}

TEST(BlockSlabDeathTest, TakesBackOnlyWhatItGave) {
    PinnedArena arena(pageable(kMiB));
    BlockSlab slab(arena, 100, 10, "extents");
    std::byte* block = slab.take();
    const HostBlock other = arena.allocate(100, "x");
    EXPECT_DEATH(slab.give_back(block + 1), "does not hold");
    EXPECT_DEATH(slab.give_back(other.data()), "does not hold");
    slab.give_back(block);
    EXPECT_DEATH(slab.give_back(block), "given back twice");
    BlockSlab empty(arena, 100, 10, "extents");
    EXPECT_DEATH(empty.give_back(block), "does not hold");
}

}  // namespace
}  // namespace slipstream
