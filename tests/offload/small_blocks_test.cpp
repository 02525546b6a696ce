// SmallBlocks: no two blocks overlap, what is given back is one gap again, and further ranges come as they are needed.
#include "offload/small_blocks.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

struct Held {
    std::byte* data;
    std::size_t bytes;
};

TEST(SmallBlocks, BlocksNeverOverlapAndGapsJoin) {
    HostPages pages(PageLock::Pageable);
    SmallBlocks blocks(pages);
    std::mt19937 rng(7);
    std::vector<Held> held;
    const std::byte* first = nullptr;
    for (int step = 0; step < 4000; ++step) {
        if (!held.empty() && rng() % 5 < 2) {
            const std::size_t which = rng() % held.size();
            blocks.free(held[which].data, held[which].bytes);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
            continue;
        }
        const std::size_t bytes = 1 + rng() % 3000;
        std::byte* data = blocks.allocate(bytes).data;
        ASSERT_NE(data, nullptr);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % SmallBlocks::kAlignment, 0U);
        if (first == nullptr) first = data;
        for (const Held& other : held)
            ASSERT_TRUE(data + bytes <= other.data || other.data + other.bytes <= data) << "step " << step;
        held.push_back({data, bytes});
    }
    std::shuffle(held.begin(), held.end(), rng);
    for (const Held& block : held) blocks.free(block.data, block.bytes);
    // All of the range is one gap: it holds a block as large as itself.
    std::byte* whole = blocks.allocate(SmallBlocks::kRangeBytes).data;
    EXPECT_EQ(whole, first);
    EXPECT_TRUE(blocks.holds(whole + SmallBlocks::kRangeBytes - 1));
    EXPECT_FALSE(blocks.holds(whole + SmallBlocks::kRangeBytes));
    std::byte* more = blocks.allocate(64).data;
    ASSERT_NE(more, nullptr);
    EXPECT_TRUE(more < whole || more >= whole + SmallBlocks::kRangeBytes);
}

TEST(SmallBlocksDeathTest, WhatIsGivenBackTwiceOrFromElsewhereIsABug) {
    HostPages pages(PageLock::Pageable);
    SmallBlocks blocks(pages);
    std::byte* block = blocks.allocate(100).data;
    std::byte elsewhere{};
    EXPECT_DEATH(blocks.free(&elsewhere, 1), "from elsewhere");
    blocks.free(block, 100);
    EXPECT_DEATH(blocks.free(block, 100), "given back twice");
}

}  // namespace
}  // namespace slipstream
