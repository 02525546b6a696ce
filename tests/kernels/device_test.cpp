// The CPU device's name, its rules for events, and its pool.
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

TEST(CpuStreamDeathTest, WaitingForAnUnrecordedUseIsAnError) {
    CpuDevice device({});
    const auto stream = device.make_stream(StreamKind::Compute);
    const auto event = device.make_event();
    EXPECT_DEATH(stream->wait(*event, 1), "wait for use 1 of an event recorded 0 times");
    stream->record(*event);
    stream->wait(*event, 1);
    EXPECT_DEATH(stream->wait(*event, 2), "wait for use 2 of an event recorded 1 times");
}

TEST(ThreadPool, EachItemOnceOnEveryCountAndPiece) {
    for (const int n_threads : {1, 2, 3}) {
        ThreadPool pool(n_threads);
        EXPECT_EQ(pool.n_threads(), n_threads);
        for (const std::int64_t n_items : {0, 1, 2, 7, 100, 1001}) {
            for (const std::int64_t piece : {1, 3, 64, 5000}) {
                std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n_items));
                pool.run(n_items, piece, [&](std::int64_t begin, std::int64_t end, int thread) {
                    EXPECT_LE(end - begin, piece);
                    EXPECT_GE(thread, 0);
                    EXPECT_LT(thread, n_threads);
                    for (std::int64_t i = begin; i < end; ++i) ++seen[i];
                });
                for (const auto& count : seen) ASSERT_EQ(count, 1);
            }
        }
    }
}

TEST(ThreadPool, ManySmallJobsAndPausesBetweenThem) {
    ThreadPool pool(3);
    std::atomic<std::int64_t> sum{0};
    for (int round = 0; round < 3000; ++round) {
        pool.run(10, 1, [&](std::int64_t begin, std::int64_t, int) { sum += begin; });
        if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // workers park
    }
    EXPECT_EQ(sum, 3000 * 45);
}

TEST(ThreadPoolDeathTest, ThreadsThatTheSystemRefusesAreAnErrorThatNamesTheRemedy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
    const auto starve = [] {
        const rlimit little{.rlim_cur = std::size_t{400} << 20, .rlim_max = std::size_t{400} << 20};
        if (setrlimit(RLIMIT_AS, &little) != 0) std::exit(1);
        try {
            const ThreadPool pool(1000);  // 8 MiB of stack each
        } catch (const OutOfBudget& error) {
            std::fprintf(stderr, "%s", error.what());
            std::exit(3);
        }
        std::exit(2);
    };
    EXPECT_EXIT(starve(), testing::ExitedWithCode(3), "of 1000 threads .*--threads");
}

}  // namespace
}  // namespace slipstream
