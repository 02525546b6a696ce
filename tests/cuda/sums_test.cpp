// Sums between ranks on a card: two and three that share it, through host memory; one alone by NCCL, which takes no
// card twice.
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "kernels/cuda/host/nccl_sums.h"
#include "kernels/host_collective.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"
#include "tests/support/error_text.h"

namespace slipstream::testing_cuda {
namespace {

constexpr std::int64_t kCols = 1000;
constexpr std::int64_t kMostRows = 65;
constexpr std::size_t kBytes = static_cast<std::size_t>(kMostRows * kCols) * sizeof(float);

// Of magnitudes that make the order of a sum show.
std::vector<float> part(std::size_t rank, std::int64_t rows) {
    std::mt19937 random(static_cast<unsigned>(rows) * 10 + static_cast<unsigned>(rank));
    std::vector<float> values(static_cast<std::size_t>(rows * kCols));
    for (float& value : values)
        value = std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 40));
    return values;
}

class CudaSums : public CudaOps {
protected:
    // Another rank's device on the same card.
    std::unique_ptr<CudaDevice> another() {
        return std::make_unique<CudaDevice>(device().table(), CudaDeviceOptions{.ordinal = device().ordinal(),
                                                                                .memory_bytes = std::size_t{64} << 20,
                                                                                .n_threads = 1,
                                                                                .allocation_bytes = 1});
    }
};

TEST_F(CudaSums, RanksThatShareACardAddInOrder) {
    for (const std::size_t n : {2U, 3U}) {
        std::vector<std::unique_ptr<CudaDevice>> others;
        std::vector<std::unique_ptr<Stream>> streams;
        std::vector<Device*> devices{&device()};
        std::vector<ExecRef> execs{exec()};
        for (std::size_t rank = 1; rank < n; ++rank) {
            others.push_back(another());
            streams.push_back(others.back()->make_stream(StreamKind::Compute));
            devices.push_back(others.back().get());
            execs.push_back({*others.back(), *streams.back()});
        }
        HostCollective sums(devices, kBytes);
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, std::int64_t{7}, kMostRows}) {
            std::vector<float> expected = part(0, rows);
            std::vector<std::unique_ptr<DeviceFloats>> y;
            for (std::size_t rank = 0; rank < n; ++rank) {
                const std::vector<float> own = part(rank, rows);
                y.push_back(std::make_unique<DeviceFloats>(execs[rank], rows, kCols, own));
                for (std::size_t i = 0; rank > 0 && i < own.size(); ++i) expected[i] += own[i];
            }
            std::vector<std::thread> threads;
            for (std::size_t rank = 0; rank < n; ++rank)
                threads.emplace_back([&, rank] { sums.rank(rank).all_reduce(execs[rank], y[rank]->view()); });
            for (std::thread& thread : threads) thread.join();
            for (std::size_t rank = 0; rank < n; ++rank)
                EXPECT_TRUE(same_bits(y[rank]->read(), expected)) << "rank " << rank << " of " << n << ", " << rows;
        }
    }
}

class CudaNccl : public CudaSums {
protected:
    void SetUp() override {
        CudaSums::SetUp();
        if (IsSkipped()) return;
        cuda::ErrorText error{};
        if (device().table().nccl_version(&version_, &error) != cuda::Status::Ok) GTEST_SKIP() << error.text;
    }
    std::int64_t version_ = 0;
};

TEST_F(CudaNccl, OneRankHasItsOwnPartAlsoBehindAnAbort) {
    CudaDevice* card = &device();
    NcclSums sums({&card, 1}, kBytes);
    for (int round = 0; round < 2; ++round) {
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, kMostRows}) {
            const DeviceFloats y(exec(), rows, kCols, part(3, rows));
            sums.rank(0).all_reduce(exec(), y.view());
            EXPECT_TRUE(same_bits(y.read(), part(3, rows))) << rows;
        }
        sums.rank(0).abort();
        const DeviceFloats y(exec(), 1, kCols, part(3, 1));
        EXPECT_THROW(sums.rank(0).all_reduce(exec(), y.view()), CollectiveAborted);
        sums.rank(0).restart();
    }
}

// Before 2.30: since then a card may be there twice.
TEST_F(CudaNccl, OneCardForTwoRanksIsRefusedInItsWords) {
    const std::unique_ptr<CudaDevice> other = another();
    const std::vector<CudaDevice*> twice{&device(), other.get()};
    const std::string said = error_text<CudaError>([&] { const NcclSums sums(twice, kBytes); });
    if (version_ >= 23000 && said == "nothing thrown") return;
    EXPECT_THAT(said, testing::ContainsRegex("^(ncclCommInitAll: invalid usage|an emulated call: Duplicate GPU)"));
}

}  // namespace
}  // namespace slipstream::testing_cuda
