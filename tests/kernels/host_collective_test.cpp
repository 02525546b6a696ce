// Sums over ranks: their order, whatever threads do; ranks that fail, do not come, or are out of step.
#include "kernels/host_collective.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

constexpr std::int64_t kCols = 48;
constexpr std::int64_t kMostRows = 7;

/// CPU devices, a rank each.
struct Ranks {
    explicit Ranks(std::size_t n, std::chrono::nanoseconds lost_after = std::chrono::minutes(1),
                   CpuFaults* faults_of_last = nullptr) {
        std::vector<Device*> all;
        for (std::size_t i = 0; i < n; ++i) {
            devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{
                .name = "device " + std::to_string(i + 1), .faults = i + 1 == n ? faults_of_last : nullptr}));
            streams.push_back(devices.back()->make_stream(StreamKind::Compute));
            all.push_back(devices.back().get());
        }
        sums.emplace(all, static_cast<std::size_t>(kMostRows) * row_bytes(DType::F32, kCols), lost_after);
    }
    void all_reduce(std::size_t rank, std::vector<float>& y) {
        sums->rank(rank).all_reduce({*devices[rank], *streams[rank]},
                                    matrix_view(y.data(), std::ssize(y) / kCols, kCols));
    }
    /// Calls `call(rank)`, each on a thread of its own.
    template <typename Call>
    void at_once(const Call& call) {
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < devices.size(); ++rank) threads.emplace_back([&, rank] { call(rank); });
        for (std::thread& thread : threads) thread.join();
    }
    std::vector<std::unique_ptr<CpuDevice>> devices;
    std::vector<std::unique_ptr<Stream>> streams;
    std::optional<HostCollective> sums;
};

// Of magnitudes that make the order of a sum show.
std::vector<float> part(std::size_t rank, int call) {
    std::mt19937 random(static_cast<unsigned>(1000 * call) + static_cast<unsigned>(rank));
    std::vector<float> values(static_cast<std::size_t>(1 + call % kMostRows) * kCols);
    for (float& value : values)
        value = std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 40));
    return values;
}

TEST(HostCollective, AddsInTheOrderOfRanksOnAllOfThem) {
    constexpr int kCalls = 200;
    for (const std::size_t n : {1U, 2U, 3U, 5U}) {
        Ranks ranks(n);
        ranks.at_once([&](std::size_t rank) {
            std::mt19937 random(static_cast<unsigned>(rank));
            for (int call = 0; call < kCalls; ++call) {
                std::vector<float> expected = part(0, call);
                for (std::size_t other = 1; other < n; ++other) {
                    const std::vector<float> term = part(other, call);
                    for (std::size_t i = 0; i < term.size(); ++i) expected[i] += term[i];
                }
                std::vector<float> y = part(rank, call);
                if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
                ranks.all_reduce(rank, y);
                ASSERT_EQ(y, expected) << "rank " << rank << " of " << n << ", call " << call;
            }
        });
    }
}

TEST(HostCollective, AnAbortIsHeardByWhoWaitsAndByWhoComesLater) {
    Ranks ranks(3);
    for (int round = 0; round < 20; ++round) {
        ranks.at_once([&](std::size_t rank) {
            std::vector<float> y = part(rank, 1);
            ranks.all_reduce(rank, y);
            if (rank == 2) {
                ranks.sums->rank(2).abort();
            } else {
                EXPECT_THROW(ranks.all_reduce(rank, y), CollectiveAborted);
            }
            EXPECT_THROW(ranks.all_reduce(rank, y), CollectiveAborted);
        });
        for (std::size_t rank = 0; rank < 3; ++rank) ranks.sums->rank(rank).restart();
    }
}

TEST(HostCollective, ARankThatDoesNotComeIsNamed) {
    Ranks ranks(2, std::chrono::milliseconds(200));
    std::vector<float> y = part(0, 1);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(error_text<IoError>([&] { ranks.all_reduce(0, y); }), "sums: device 2 has not arrived within 0.2 s");
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(HostCollective, SlotsAreInTheBudgetsOfCpuDevices) {
    const Ranks ranks(2);
    const std::size_t bytes = static_cast<std::size_t>(kMostRows) * row_bytes(DType::F32, kCols);
    for (const auto& device : ranks.devices)
        EXPECT_EQ(device->budget().used_bytes(), rank_sums_bytes(DeviceKind::Cpu, 2, bytes));
    EXPECT_EQ(rank_sums_bytes(DeviceKind::Cpu, 2, bytes), 2 * bytes);
    EXPECT_EQ(rank_sums_bytes(DeviceKind::Cpu, 1, bytes), 0U);
}

TEST(RankMeeting, ASlowLinkHasItsTime) {
    using std::chrono::minutes;
    EXPECT_EQ(rank_is_lost_after(std::size_t{1} << 40, 0.0), kRankIsLost);
    EXPECT_EQ(rank_is_lost_after(120000, 100.0), kRankIsLost + minutes(20));
    EXPECT_EQ(rank_is_lost_after(std::size_t{1} << 60, 1e-9), kRankIsLost + minutes(7 * 24 * 60));
}

TEST(HostCollective, ACopyThatFailsIsTheSums) {
    CpuFaults faults;
    Ranks ranks(2, std::chrono::minutes(1), &faults);
    faults.rows_until_failure = 1;
    std::vector<float> y = part(1, 1);
    EXPECT_THAT(error_text<IoError>([&] { ranks.all_reduce(1, y); }),
                testing::StartsWith("sums: device 2: a copy of "));
}

TEST(HostCollectiveDeathTest, RanksOutOfStepAreABug) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            Ranks ranks(2);
            ranks.at_once([&](std::size_t rank) {
                std::vector<float> y = part(0, static_cast<int>(rank));
                ranks.all_reduce(rank, y);
            });
        },
        "out of step");
}

}  // namespace
}  // namespace slipstream
