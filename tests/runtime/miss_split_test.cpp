// The split of missed experts between link and CPU, by rates alone.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/experts/miss_split.h"

namespace slipstream {
namespace {

/// An expert of 100 bytes: a second on the CPU for up to 4 tokens, then in proportion.
MissCost cost_of(double copy_seconds, double memory_seconds = 0.0, double host_bytes_per_copied_byte = 1.0) {
    return {.parts = {{60.0, ByteCost({{.vectors = 4.0, .seconds = 0.01}})},
                      {40.0, ByteCost({{.vectors = 4.0, .seconds = 0.01}})}},
            .rates = {.link_bytes_per_second = 100.0 / copy_seconds,
                      .memory_bytes_per_second = memory_seconds > 0.0 ? 100.0 / memory_seconds : 0.0,
                      .host_bytes_per_copied_byte = host_bytes_per_copied_byte}};
}

TEST(MissSplit, TheLongerSideIsAsShortAsItCanBe) {
    const std::vector<std::int64_t> ones(8, 1);
    EXPECT_EQ(missed_to_copy(ones, cost_of(1.0)), 4);
    EXPECT_EQ(missed_to_copy(ones, cost_of(3.0)), 2);
    EXPECT_EQ(missed_to_copy(ones, cost_of(1.0 / 3.0)), 6);
    EXPECT_EQ(missed_to_copy(ones, cost_of(100.0)), 0) << "a copy takes longer than all others on the CPU";
    EXPECT_EQ(missed_to_copy(ones, cost_of(1e-9)), 8);
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{1}, cost_of(1.0)), 0) << "a tie goes to the CPU";
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{}, cost_of(1.0)), 0);
    // Of experts with 16, 4 and 1 tokens, the first takes 4 seconds on the CPU, the others one each.
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{16, 4, 1}, cost_of(2.0)), 1);
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{16, 4, 1}, cost_of(1.0)), 1);
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{16, 4, 1}, cost_of(0.5)), 2);
}

// Where the CPU reads as fast as memory allows, copies only take from it.
TEST(MissSplit, HostMemoryIsShared) {
    const std::vector<std::int64_t> ones(8, 1);
    EXPECT_EQ(missed_to_copy(ones, cost_of(1.0, 1.0)), 0);
    EXPECT_EQ(missed_to_copy(ones, cost_of(1.0, 0.5)), 4);
    EXPECT_EQ(missed_to_copy(ones, cost_of(1.0, 0.5, 3.0)), 2);  // 0.5 (2 * 3 + 6) = 6 = 8 - 2
    EXPECT_EQ(share_to_copy(1.0, cost_of(1.0, 1.0)), 0.0);
    EXPECT_DOUBLE_EQ(share_to_copy(1.0, cost_of(1.0, 0.5)), 0.5);
    EXPECT_DOUBLE_EQ(share_to_copy(1.0, cost_of(1.0, 0.5, 3.0)), 0.25);
    EXPECT_DOUBLE_EQ(share_to_copy(16.0, cost_of(1.0)), 0.8);
}

TEST(MissSplit, ManyMissesAreSplitByTheShare) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> of(0.05, 3.0);
    for (int round = 0; round < 300; ++round) {
        const MissCost cost = cost_of(of(random), of(random), 1.0 + of(random));
        const auto n_tokens = static_cast<std::int64_t>(1 + random() % 40);
        const std::vector<std::int64_t> tokens(1000, n_tokens);
        EXPECT_NEAR(static_cast<double>(missed_to_copy(tokens, cost)) / 1000.0,
                    share_to_copy(static_cast<double>(n_tokens), cost), 0.0011);
    }
}

// Faster links copy more, a faster CPU less.
TEST(MissSplit, RatesMoveTheSplitTheirWay) {
    std::mt19937 random(6);
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> tokens;
        for (std::uint32_t i = random() % 20 + 1; i > 0; --i)
            tokens.push_back(1 + static_cast<std::int64_t>(random() % 64));
        std::ranges::sort(tokens, std::greater());
        std::int64_t before = 0;
        for (const double copy : {50.0, 5.0, 1.0, 0.3, 0.01}) {
            const std::int64_t n = missed_to_copy(tokens, cost_of(copy));
            EXPECT_GE(n, before);
            EXPECT_LE(n, std::ssize(tokens));
            before = n;
        }
    }
}

// A plan whose devices are not measured has no rates.
TEST(MissSplit, WithoutCostsNothingIsCopied) {
    EXPECT_EQ(missed_to_copy(std::vector<std::int64_t>{4, 1}, {.rates = {.link_bytes_per_second = 1.0}}), 0);
    EXPECT_EQ(share_to_copy(3.0, {.rates = {.link_bytes_per_second = 1.0}}), 0.0);
}

}  // namespace
}  // namespace slipstream
