// Budgets: counted to the byte, never exceeded, errors that name request, rest and remedy.
#include "kernels/base/budget.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

TEST(Budget, CountsToTheByteAndGivesBack) {
    CpuDevice device({.memory_bytes = 1000, .name = "card"});
    Buffer first = device.allocate(600, MemoryTag::Weights, "the first");
    EXPECT_EQ(device.budget().used_bytes(MemoryTag::Weights), 600U);
    try {
        static_cast<void>(device.allocate(401, MemoryTag::Kv, "the second"));
        FAIL() << "over budget";
    } catch (const OutOfBudget& error) {
        EXPECT_THAT(
            error.what(),
            testing::StartsWith("card: the second needs 401 bytes (kv), but only 400 bytes of 1000 bytes are left"));
        for (const char* remedy : {"--device-memory", "--ctx", "smaller model"})
            EXPECT_THAT(error.what(), testing::HasSubstr(remedy));
        EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
    }
    {
        const Buffer second = device.allocate(400, MemoryTag::Kv, "the second");
        EXPECT_EQ(device.budget().used_bytes(), 1000U);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % 64, 0U);
    }
    EXPECT_EQ(device.budget().used_bytes(), 600U);
    first = Buffer();
    EXPECT_EQ(device.budget().used_bytes(), 0U);
    EXPECT_EQ(device.budget().peak_bytes(), 1000U);
}

TEST(Budget, AnAbsurdRequestIsRefused) {
    CpuDevice device({});
    EXPECT_THROW(static_cast<void>(device.allocate(std::size_t{1} << 60, MemoryTag::Kv, "too much")), OutOfBudget);
    EXPECT_EQ(device.budget().used_bytes(), 0U);
}

// Each thread counts what it holds from when it has it until before it gives it back, so the sum of these counts is
// never more than what is reserved.
TEST(Budget, IsNeverExceededByThreadsThatReserveAndGiveBack) {
    constexpr std::size_t kLimit = 10'000;
    constexpr int kThreads = 4, kRounds = 4000;
    Budget budget("card", kLimit);
    std::atomic<std::size_t> held{0}, most_held{0}, n_refused{0};
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < kThreads; ++thread)
            threads.emplace_back([&, thread] {
                std::mt19937 random(static_cast<unsigned>(thread));
                std::array<Reservation, 8> mine;  // one thread alone reaches the limit
                for (int round = 0; round < kRounds; ++round) {
                    Reservation& slot = mine[random() % mine.size()];
                    held -= slot.bytes();
                    {
                        Reservation given_back;
                        std::swap(slot, given_back);
                    }
                    try {
                        slot = budget.reserve(random() % 2500, static_cast<MemoryTag>(random() % kMemoryTagCount), "x");
                    } catch (const OutOfBudget&) {
                        ++n_refused;
                        continue;
                    }
                    const std::size_t now = held += slot.bytes();
                    for (std::size_t most = most_held; most < now && !most_held.compare_exchange_weak(most, now);) {
                    }
                    ASSERT_LE(budget.used_bytes(), kLimit);
                }
                for (const Reservation& slot : mine) held -= slot.bytes();
            });
    }
    EXPECT_GT(n_refused, 0U) << "the limit was not reached";
    EXPECT_LE(most_held, budget.peak_bytes());
    EXPECT_LE(budget.peak_bytes(), kLimit);
    EXPECT_GT(budget.peak_bytes(), kLimit / 2);
    EXPECT_EQ(budget.used_bytes(), 0U);
    for (int tag = 0; tag < kMemoryTagCount; ++tag) EXPECT_EQ(budget.used_bytes(static_cast<MemoryTag>(tag)), 0U);
}

}  // namespace
}  // namespace slipstream
