// The time of a throttled link, worked out for copies that become ready when the test says.
#include "kernels/cpu/link_clock.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::cpu {
namespace {

using Clock = LinkClock::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

double seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

TEST(LinkClock, ACopyBeginsWhenTheLinkIsFreeAndItIsReady) {
    const Clock::time_point start = Clock::now();
    LinkClock link(1e6);
    const auto at = [&](int ms) { return start + milliseconds(ms); };
    const auto expect_turn = [&](const LinkClock::Turn& turn, double begin_ms, double end_ms) {
        EXPECT_NEAR(seconds(turn.begin - start), 1e-3 * begin_ms, 1e-6);
        EXPECT_NEAR(seconds(turn.end - start), 1e-3 * end_ms, 1e-6);
    };
    expect_turn(link.take(2000, at(10)), 10, 12);
    expect_turn(link.take(3000, at(11)), 12, 15);  // ready while the link is taken
    expect_turn(link.take(500, at(5)), 15, 15.5);  // ready long ago
    expect_turn(link.take(1000, at(20)), 20, 21);  // the link was idle
}

TEST(LinkClock, TheRateHoldsToTheNanosecondOverManySmallCopies) {
    const double rate = 2.0 * (1U << 30);
    LinkClock link(rate);
    const Clock::time_point ready = Clock::now();
    std::mt19937 random(3);
    double bytes = 0.0;
    Clock::time_point end;
    for (int i = 0; i < 100000; ++i) {
        const std::size_t n = 1 + random() % 100;
        bytes += static_cast<double>(n);
        end = link.take(n, ready).end;
    }
    EXPECT_NEAR(seconds(end - ready), bytes / rate, 2e-9);
}

TEST(LinkClock, TurnsOfSeveralThreadsDoNotOverlap) {
    constexpr int kThreads = 4, kTurns = 500;
    LinkClock link(1e9);
    std::vector<LinkClock::Turn> turns[kThreads];
    {
        std::vector<std::jthread> threads;
        for (auto& own : turns)
            threads.emplace_back([&link, &own] {
                for (std::size_t i = 0; i < kTurns; ++i) {
                    own.push_back(link.take(1000 + i, Clock::now()));
                    link.finish(1000 + i);
                }
            });
    }
    std::vector<LinkClock::Turn> all;
    for (const auto& own : turns) all.insert(all.end(), own.begin(), own.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < all.size(); ++i) ASSERT_LE(all[i - 1].end - all[i].begin, std::chrono::nanoseconds(1));
    EXPECT_EQ(link.figures().bytes, std::uint64_t{kThreads} * (kTurns * 1000 + kTurns * (kTurns - 1) / 2));
}

TEST(LinkClock, BusySecondsAreThoseOfTurnsAsFarAsTheyAreOver) {
    LinkClock link(1e6);
    const Clock::time_point before = Clock::now();
    static_cast<void>(link.take(10'000'000, before));  // ten seconds
    std::this_thread::sleep_for(milliseconds(5));
    const double busy = link.figures().busy_seconds;
    EXPECT_LE(busy, seconds(Clock::now() - before));
    EXPECT_GE(busy, 0.005);
    EXPECT_EQ(link.figures().bytes, 0U) << "the copy is not finished";
    LinkClock done(1e9);
    const LinkClock::Turn turn = done.take(1'000'000, before);
    std::this_thread::sleep_until(turn.end + milliseconds(2));
    done.finish(1'000'000);
    EXPECT_NEAR(done.figures().busy_seconds, 1e-3, 1e-9) << "and none of the time after";
}

TEST(LinkClock, WithoutARateItIsBusyWhileSomebodyCopies) {
    LinkClock link(0.0);
    EXPECT_EQ(link.figures().busy_seconds, 0.0);
    const Clock::time_point before = Clock::now();
    const LinkClock::Turn first = link.take(10, before);
    EXPECT_LE(first.end, Clock::now());
    static_cast<void>(link.take(20, before));  // at the same time: counted once
    std::this_thread::sleep_for(milliseconds(3));
    link.finish(10);
    const double with_one = link.figures().busy_seconds;
    EXPECT_GE(with_one, 0.003);
    link.finish(20);
    const double busy = link.figures().busy_seconds;
    EXPECT_LE(busy, seconds(Clock::now() - before));
    std::this_thread::sleep_for(microseconds(200));
    EXPECT_EQ(link.figures().busy_seconds, busy);
    EXPECT_EQ(link.figures().bytes, 30U);
}

}  // namespace
}  // namespace slipstream::cpu
