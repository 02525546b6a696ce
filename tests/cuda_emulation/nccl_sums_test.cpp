// Sums over emulated cards by what stands for NCCL: the bits of sums through host memory, failures of any rank, and
// when which of the two is chosen.
#include "kernels/cuda/host/nccl_sums.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/host_collective.h"
#include "tests/cuda/device_array.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::MachineOptions;
using emulation::Nccl;
using emulation::Timing;
using testing::HasSubstr;
using testing_cuda::DeviceFloats;

constexpr std::int64_t kCols = 50;
constexpr std::int64_t kMostRows = 7;
constexpr std::size_t kBytes = static_cast<std::size_t>(kMostRows * kCols) * sizeof(float);

using Rows = std::vector<float>;

// Of magnitudes that make the order of a sum show.
Rows part(std::size_t rank, std::int64_t n, unsigned seed) {
    std::mt19937 random(1000 * seed + static_cast<unsigned>(rank));
    Rows values(static_cast<std::size_t>(n));
    for (float& value : values)
        value = std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 40));
    return values;
}

Rows sum_in_order(std::size_t n_ranks, std::int64_t n, unsigned seed) {
    Rows sum = part(0, n, seed);
    for (std::size_t rank = 1; rank < n_ranks; ++rank) {
        const Rows term = part(rank, n, seed);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
    }
    return sum;
}

/// Cards of one machine, a rank each.
struct Cards {
    explicit Cards(std::size_t n, MachineOptions options = {.nccl = Nccl::Serves})
        : machine([&] {
              options.n_cards = static_cast<int>(n);
              options.memory_bytes = std::size_t{64} << 20;
              return options;
          }()) {
        for (std::size_t i = 0; i < n; ++i) {
            cards.push_back(std::make_unique<CudaDevice>(
                machine.table(),
                CudaDeviceOptions{
                    .ordinal = static_cast<int>(i), .memory_bytes = std::size_t{32} << 20, .n_threads = 1}));
            streams.push_back(cards.back()->make_stream(StreamKind::Compute));
            all.push_back(cards.back().get());
            devices.push_back(cards.back().get());
        }
    }
    [[nodiscard]] ExecRef exec(std::size_t rank) { return {*cards[rank], *streams[rank]}; }
    /// Calls `call(rank)`, each on a thread of its own.
    template <typename Call>
    void at_once(const Call& call) {
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < cards.size(); ++rank) threads.emplace_back([&, rank] { call(rank); });
        for (std::thread& thread : threads) thread.join();
    }
    /// What all ranks have of a sum of parts of that seed.
    std::vector<Rows> sum(RankSums& sums, std::int64_t rows, unsigned seed, std::int64_t cols = kCols) {
        std::vector<std::unique_ptr<DeviceFloats>> y;
        for (std::size_t rank = 0; rank < cards.size(); ++rank)
            y.push_back(std::make_unique<DeviceFloats>(exec(rank), rows, cols, part(rank, rows * cols, seed)));
        at_once([&](std::size_t rank) { sums.rank(rank).all_reduce(exec(rank), y[rank]->view()); });
        std::vector<Rows> out;
        for (const auto& each : y) out.push_back(each->read());
        return out;
    }
    Machine machine;
    std::vector<std::unique_ptr<CudaDevice>> cards;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<CudaDevice*> all;
    std::vector<Device*> devices;
};

void expect_sum(Cards& cards, RankSums& sums, unsigned seed) {
    const std::int64_t rows = 1 + seed % kMostRows;
    for (const Rows& found : cards.sum(sums, rows, seed))
        EXPECT_EQ(found, sum_in_order(cards.cards.size(), rows * kCols, seed)) << rows << " rows, seed " << seed;
}

class NcclSumsTest : public testing::TestWithParam<Timing> {};

TEST_P(NcclSumsTest, HaveTheBitsOfSumsThroughHostMemory) {
    for (const std::size_t n : {1U, 2U, 3U, 4U}) {
        Cards cards(n, {.timing = GetParam(), .nccl = Nccl::Serves});
        NcclSums by_nccl(cards.all, kBytes);
        HostCollective by_host(cards.devices, kBytes);
        for (unsigned seed = 1; seed <= 5; ++seed) {
            expect_sum(cards, by_nccl, seed);
            expect_sum(cards, by_host, seed);
        }
    }
}

// What is gathered at once has room for 32 rows.
TEST_P(NcclSumsTest, ManyRowsAreGatheredInTurn) {
    constexpr std::int64_t kLong = 8192;
    constexpr std::int64_t kRows = 33;
    Cards cards(3, {.timing = GetParam(), .nccl = Nccl::Serves});
    NcclSums sums(cards.all, static_cast<std::size_t>(kRows * kLong) * sizeof(float));
    const std::int64_t before = cards.machine.n_sums();
    const Rows expected = sum_in_order(3, kRows * kLong, 5);
    for (const Rows& found : cards.sum(sums, kRows, 5, kLong)) EXPECT_TRUE(found == expected);
    EXPECT_EQ(cards.machine.n_sums() - before, 2);
}

INSTANTIATE_TEST_SUITE_P(Timings, NcclSumsTest, testing::ValuesIn(kTimings));

TEST(NcclSums, ManyCallsBehindOneAnother) {
    constexpr int kCalls = 40;
    Cards cards(3, {.timing = Timing::Latest, .nccl = Nccl::Serves});
    NcclSums sums(cards.all, kBytes);
    std::vector<std::vector<std::unique_ptr<DeviceFloats>>> y(3);
    for (std::size_t rank = 0; rank < 3; ++rank)
        for (unsigned call = 0; call < kCalls; ++call)
            y[rank].push_back(std::make_unique<DeviceFloats>(cards.exec(rank), 2, kCols, part(rank, 2 * kCols, call)));
    cards.at_once([&](std::size_t rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (const auto& each : y[rank]) {
            if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
            sums.rank(rank).all_reduce(cards.exec(rank), each->view());
        }
    });
    for (std::size_t rank = 0; rank < 3; ++rank)
        for (unsigned call = 0; call < kCalls; ++call)
            EXPECT_EQ(y[rank][call]->read(), sum_in_order(3, 2 * kCols, call)) << "rank " << rank << ", call " << call;
}

// Nothing is enqueued for who came, so no card waits for the one that did not.
TEST(NcclSums, AnAbortIsHeardByWhoWaitsAndByWhoComesLater) {
    Cards cards(3);
    NcclSums sums(cards.all, kBytes);
    for (int round = 0; round < 5; ++round) {
        expect_sum(cards, sums, 3);
        const std::int64_t before = cards.machine.n_sums();
        std::vector<std::unique_ptr<DeviceFloats>> y;
        for (std::size_t rank = 0; rank < 3; ++rank)
            y.push_back(std::make_unique<DeviceFloats>(cards.exec(rank), 1, kCols, part(rank, kCols, 1)));
        cards.at_once([&](std::size_t rank) {
            const auto call = [&] { sums.rank(rank).all_reduce(cards.exec(rank), y[rank]->view()); };
            if (rank == 2) {
                sums.rank(2).abort();
            } else {
                EXPECT_THROW(call(), CollectiveAborted);
            }
            EXPECT_THROW(call(), CollectiveAborted);
        });
        EXPECT_EQ(cards.machine.n_sums(), before);
        EXPECT_EQ(cards.machine.n_communicators(), 0);
        for (std::size_t rank = 0; rank < 3; ++rank) sums.rank(rank).restart();
        EXPECT_EQ(cards.machine.n_communicators(), 3);
    }
    expect_sum(cards, sums, 4);
}

// What a stream has before it never ends here: the abort takes the sum out of the way of whoever waits for the stream.
TEST(NcclSums, AnAbortEndsWhatIsUnderWay) {
    Cards cards(2, {.timing = Timing::Latest, .nccl = Nccl::Serves});
    NcclSums sums(cards.all, kBytes);
    const DeviceFloats first(cards.exec(0), 1, kCols, part(0, kCols, 1));
    const DeviceFloats second(cards.exec(1), 1, kCols, part(1, kCols, 1));
    cards.at_once(
        [&](std::size_t rank) { sums.rank(rank).all_reduce(cards.exec(rank), (rank == 0 ? first : second).view()); });
    EXPECT_EQ(cards.machine.n_waiting(), 2);
    sums.rank(0).abort();
    for (std::size_t rank = 0; rank < 2; ++rank) cards.streams[rank]->synchronize();
    EXPECT_EQ(cards.machine.n_waiting(), 0);
    EXPECT_NE(first.read(), sum_in_order(2, kCols, 1));
    for (std::size_t rank = 0; rank < 2; ++rank) sums.rank(rank).restart();
    expect_sum(cards, sums, 6);
}

TEST(NcclSums, ARankThatDoesNotComeIsNamedAndNothingIsEnqueued) {
    Cards cards(2);
    NcclSums sums(cards.all, kBytes, std::chrono::milliseconds(200));
    const std::int64_t before = cards.machine.n_sums();
    const DeviceFloats y(cards.exec(0), 1, kCols, part(0, kCols, 1));
    EXPECT_EQ(error_text<IoError>([&] { sums.rank(0).all_reduce(cards.exec(0), y.view()); }),
              "sums: cuda:1 has not arrived within 0.2 s");
    EXPECT_EQ(cards.machine.n_sums(), before);
}

/// What each rank says of a sum; who fails gives up for all, as the target's threads do.
std::vector<std::string> failures(Cards& cards, RankSums& sums) {
    std::vector<std::string> said(cards.cards.size());
    std::vector<std::unique_ptr<DeviceFloats>> y;
    for (std::size_t rank = 0; rank < said.size(); ++rank)
        y.push_back(std::make_unique<DeviceFloats>(cards.exec(rank), 1, kCols, part(rank, kCols, 1)));
    cards.at_once([&](std::size_t rank) {
        try {
            sums.rank(rank).all_reduce(cards.exec(rank), y[rank]->view());
        } catch (const CollectiveAborted&) {
            said[rank] = "aborted";
        } catch (const IoError& error) {
            said[rank] = error.what();
            sums.rank(rank).abort();
        }
    });
    return said;
}

TEST(NcclSums, AFailureIsThrownByTheRankThatItIsOf) {
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        Cards cards(3);
        NcclSums sums(cards.all, kBytes);
        expect_sum(cards, sums, 2);
        cards.machine.fail_sum_of(rank);
        std::vector<std::string> expected(3, "aborted");
        expected[rank] = "sums: cuda:" + std::to_string(rank) + " (rank " + std::to_string(rank) +
                         "): an emulated call: unhandled cuda error";
        EXPECT_EQ(failures(cards, sums), expected);
        for (std::size_t each = 0; each < 3; ++each) sums.rank(each).restart();
        expect_sum(cards, sums, 2);
    }
}

TEST(NcclSums, WithoutCommunicatorsTheNextSumSaysWhy) {
    Cards cards(2);
    NcclSums sums(cards.all, kBytes);
    sums.rank(1).abort();
    cards.machine.refuse_communicators(true);
    for (std::size_t rank = 0; rank < 2; ++rank) sums.rank(rank).restart();
    EXPECT_THAT(failures(cards, sums),
                testing::UnorderedElementsAre("sums: an emulated call: unhandled system error", "aborted"));
    cards.machine.refuse_communicators(false);
    for (std::size_t rank = 0; rank < 2; ++rank) sums.rank(rank).restart();
    expect_sum(cards, sums, 2);
}

TEST(NcclSums, MemoryOfCardsIsCounted) {
    for (const std::size_t n : {2U, 3U}) {
        Cards cards(n);
        const std::size_t before = cards.cards[0]->budget().used_bytes();
        const NcclSums sums(cards.all, kBytes);
        EXPECT_EQ(cards.cards[0]->budget().used_bytes() - before, NcclSums::device_bytes(n, kBytes));
        EXPECT_EQ(NcclSums::device_bytes(n, kBytes), n == 2 ? 0 : 3 * kBytes);
        EXPECT_EQ(rank_sums_bytes(DeviceKind::Cuda, n, kBytes), NcclSums::device_bytes(n, kBytes));
    }
}

/// How cards of such a machine would sum up; the sums are right.
ChosenSums choice_on(const MachineOptions& options, const std::function<void(Machine&)>& before = {}) {
    Cards cards(2, options);
    if (before) before(cards.machine);
    ChosenSums chosen = choose_rank_sums(cards.devices, kBytes);
    expect_sum(cards, *chosen.sums, 9);
    chosen.sums.reset();
    return chosen;
}

TEST(ChooseRankSums, NcclServesCardsThatReachOneAnother) {
    const ChosenSums chosen = choice_on({.nccl = Nccl::Serves});
    EXPECT_EQ(chosen.way, "NCCL 2.28.9");
    EXPECT_EQ(chosen.trouble, "");
}

TEST(ChooseRankSums, HostMemoryIsNoTroubleWhereNcclIsNotOfUse) {
    const ChosenSums none = choice_on({.nccl = Nccl::None});
    EXPECT_EQ(none.way, "host memory (NCCL is not installed)");
    EXPECT_EQ(none.trouble, "");
    const ChosenSums apart = choice_on({.nccl = Nccl::Serves, .has_peers = false});
    EXPECT_EQ(apart.way, "host memory (cuda:0 does not reach the memory of cuda:1)");
    EXPECT_EQ(apart.trouble, "");
    CpuDevice first{{}};
    CpuDevice second{{}};
    const std::vector<Device*> cpus{&first, &second};
    EXPECT_EQ(choose_rank_sums(cpus, kBytes).way, "host memory");
}

TEST(ChooseRankSums, WhatShouldHaveServedIsSaid) {
    EXPECT_EQ(choice_on({.nccl = Nccl::DoesNotOpen}).trouble,
              "NCCL cannot be used (libnccl.so.2: file too short): sums between the GPUs go through host memory");
    EXPECT_THAT(choice_on({.nccl = Nccl::Serves}, [](Machine& machine) { machine.refuse_communicators(true); }).trouble,
                HasSubstr("unhandled system error"));
    const auto first_sum_fails = [](Machine& machine) { machine.fail_sum_of(1); };
    const ChosenSums chosen = choice_on({.nccl = Nccl::Serves}, first_sum_fails);
    EXPECT_THAT(chosen.trouble, HasSubstr("cuda:1 (rank 1): an emulated call: unhandled cuda error"));
    EXPECT_EQ(chosen.way, "host memory");
}

TEST(NcclSums, VersionsAreWrittenAsNcclWritesThem) {
    EXPECT_EQ(nccl_version_text(22809), "2.28.9");
    EXPECT_EQ(nccl_version_text(21005), "2.10.5");
}

}  // namespace
}  // namespace slipstream
