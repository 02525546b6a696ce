// PassPrefetcher: every item of every pass, under every schedule; when the next schedule is asked for; drops and
// failures.
#include "offload/pass_prefetcher.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "tests/offload/pass_schedules.h"
#include "tests/offload/scheduled_device.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

// A prefetcher on a scheduled device.
class Rig {
public:
    Rig(Schedule schedule, unsigned seed, std::size_t ring_bytes, std::int64_t ring_items,
        std::function<std::vector<std::size_t>(std::int64_t)> sizes)
        : device(schedule, seed),
          compute(device.make_stream(StreamKind::Compute)),
          copies(device.make_stream(StreamKind::CopyIn)),
          memory(ring_bytes),
          schedules(std::move(sizes)),
          ring(device, memory.span(), *copies, ring_items),
          prefetcher(ring, schedules, 200) {}

    // Of the running pass, which is the `pass`-th asked for; looked at when the compute stream gets there.
    void acquire(std::int64_t pass, std::int64_t index) {
        const std::byte* data = prefetcher.acquire(index, *compute);
        static_cast<ScheduledStream&>(*compute).call([this, data, pass, index] {
            n_seen += 1;
            n_wrong += schedules.is_item(data, pass, index) ? 0 : 1;
        });
        device.let_run();
    }
    void release(std::int64_t index) {
        prefetcher.release(index, *compute);
        device.let_run();
    }
    // Reads `n` items of a pass one by one.
    void read(std::int64_t pass, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            acquire(pass, i);
            release(i);
        }
    }
    void begin() {
        prefetcher.begin_pass(*compute);
        device.let_run();
    }

    ScheduledDevice device;
    std::unique_ptr<Stream> compute, copies;
    RingMemory memory;
    PassSchedules schedules;
    std::int64_t n_seen = 0;
    std::int64_t n_wrong = 0;
    TransferRing ring;
    PassPrefetcher prefetcher;
};

std::vector<std::size_t> random_sizes(std::mt19937& rng, std::size_t largest) {
    std::vector<std::size_t> sizes(1 + rng() % (rng() % 4 == 0 ? 200 : 12));
    for (std::size_t& bytes : sizes) bytes = rng() % 3 == 0 ? 1 + rng() % largest : largest - rng() % (largest / 8 + 1);
    return sizes;
}

TEST(PassPrefetcher, EveryItemOfEveryPassUnderEverySchedule) {
    for (const Schedule schedule : kSchedules) {
        for (unsigned seed = 0; seed < 40; ++seed) {
            SCOPED_TRACE(testing::Message() << "schedule " << static_cast<int>(schedule) << " seed " << seed);
            std::mt19937 rng(seed);
            const std::size_t largest = 1 + rng() % 500;
            // From exactly two items over a few to several passes; a ring of one item still serves, too.
            const std::size_t n_fit = seed % 4 == 0 ? 2 : seed % 4 == 1 ? 1 + rng() % 6 : 1 + rng() % 600;
            Rig rig(schedule, seed, n_fit * TransferRing::slot_bytes(largest),
                    1 + static_cast<std::int64_t>(rng() % 300),
                    [&rng, largest](std::int64_t) { return random_sizes(rng, largest); });
            std::int64_t base = 0;  // number of the running pass's item 0 in the ring
            std::int64_t n_read = 0;
            for (std::int64_t pass = 0; pass < 8; ++pass) {
                rig.begin();
                const std::int64_t n = rig.prefetcher.n_items();
                ASSERT_EQ(n, rig.schedules.n_items(pass));
                for (std::int64_t i = 0; i < n; ++i) {
                    std::int64_t ahead = i;  // what is copied ahead may be held, too
                    while (ahead + 1 < n && base + ahead + 1 < rig.ring.next_number() && rng() % 3 == 0) ++ahead;
                    for (std::int64_t k = i; k <= ahead; ++k) rig.acquire(pass, k);
                    n_read += ahead - i + 1;
                    rig.release(i);
                    ASSERT_LE(rig.schedules.n_asked(), pass + 2);
                    ASSERT_EQ(rig.prefetcher.next_is_frozen(), rig.schedules.n_asked() == pass + 2);
                }
                rig.prefetcher.end_pass();
                base += n;
            }
            EXPECT_EQ(rig.device.n_synchronised, 0);
            EXPECT_TRUE(rig.device.run_all()) << "streams wait for each other";
            EXPECT_EQ(rig.n_seen, n_read);
            EXPECT_EQ(rig.n_wrong, 0);
            EXPECT_EQ(rig.device.n_stale_waits, 0);
        }
    }
}

TEST(PassPrefetcher, AsksForTheNextScheduleAtItsFirstCopy) {
    // Rings of 2, 5 and 9 items of a schedule of 8.
    for (const std::int64_t n_fit : {2, 5, 9, 100}) {
        Rig rig(Schedule::Random, 0, static_cast<std::size_t>(n_fit) * 64, 200,
                [](std::int64_t) { return std::vector<std::size_t>(8, 64); });
        EXPECT_EQ(rig.schedules.n_asked(), 0);
        for (std::int64_t pass = 0; pass < 5; ++pass) {
            rig.begin();
            for (std::int64_t i = 0;; ++i) {
                const std::int64_t n_released = pass * 8 + i;
                const std::int64_t n_pushed = std::min(n_released + n_fit, (pass + 2) * 8);
                ASSERT_EQ(rig.ring.next_number(), n_pushed) << "ring " << n_fit << " pass " << pass << " block " << i;
                ASSERT_EQ(rig.schedules.n_asked(), (n_pushed + 7) / 8);
                if (i == 8) break;
                rig.acquire(pass, i);
                rig.release(i);
            }
            rig.prefetcher.end_pass();
        }
        EXPECT_TRUE(rig.device.run_all());
        EXPECT_EQ(rig.n_wrong, 0);
    }
}

TEST(PassPrefetcher, TheLinkHasWorkBetweenPasses) {
    Rig rig(Schedule::CopiesLate, 0, 4 * 64, 10, [](std::int64_t) { return std::vector<std::size_t>(20, 64); });
    for (std::int64_t pass = 0; pass < 3; ++pass) {
        rig.begin();
        EXPECT_EQ(rig.ring.next_number(), pass * 20 + 4);
        rig.read(pass, 0, 20);
        rig.prefetcher.end_pass();
        EXPECT_EQ(rig.ring.next_number(), (pass + 1) * 20 + 4);
    }
}

TEST(PassPrefetcher, PassesWithoutItemsAndBetweenThem) {
    // One item, none, none, three, none: the next schedule is asked for at once where there is nothing to wait for.
    const std::vector<std::vector<std::size_t>> sizes{{100}, {}, {}, {10, 20, 30}, {}, {5}};
    Rig rig(Schedule::Random, 2, 200, 4,
            [&](std::int64_t pass) { return sizes[static_cast<std::size_t>(pass) % sizes.size()]; });
    for (std::int64_t pass = 0; pass < 30; ++pass) {
        rig.begin();
        ASSERT_EQ(rig.prefetcher.n_items(), std::ssize(sizes[static_cast<std::size_t>(pass) % sizes.size()]));
        rig.read(pass, 0, rig.prefetcher.n_items());
        rig.prefetcher.end_pass();
        EXPECT_EQ(rig.prefetcher.n_items(), 0);
        ASSERT_LE(rig.schedules.n_asked(), pass + 2);
    }
    EXPECT_TRUE(rig.device.run_all());
    EXPECT_EQ(rig.n_wrong, 0);
}

TEST(PassPrefetcher, AnItemLargerThanTheRingIsToldWhenItsPassBegins) {
    std::vector<std::size_t> sizes{64, 64};
    Rig rig(Schedule::Random, 0, 1000, 10, [&](std::int64_t) { return sizes; });
    rig.begin();
    sizes = {64, 1001, 2000};  // for the next but one
    rig.read(0, 0, 2);
    rig.prefetcher.end_pass();
    rig.begin();
    rig.read(1, 0, 2);
    EXPECT_TRUE(rig.prefetcher.next_is_frozen());
    rig.prefetcher.end_pass();
    for (int again = 0; again < 2; ++again)
        EXPECT_EQ(
            error_text<OutOfBudget>([&] { rig.begin(); }),
            "an item of 2000 bytes must be copied to the device, but its transfer ring holds only 1000; use a larger "
            "--device-memory or --ring");
    sizes = {1000};
    rig.begin();
    rig.read(rig.schedules.n_asked() - 1, 0, 1);
    rig.prefetcher.end_pass();
    EXPECT_TRUE(rig.device.run_all());
    EXPECT_EQ(rig.n_wrong, 0);
}

TEST(PassPrefetcher, RewindsAtRandomMoments) {
    for (const Schedule schedule : kSchedules) {
        for (unsigned seed = 0; seed < 20; ++seed) {
            SCOPED_TRACE(testing::Message() << "schedule " << static_cast<int>(schedule) << " seed " << seed);
            std::mt19937 rng(seed);
            Rig rig(schedule, seed, 64 * (2 + rng() % 60), 100,
                    [&rng](std::int64_t) { return random_sizes(rng, 128); });
            for (int round = 0; round < 15; ++round) {
                const std::int64_t pass = rig.schedules.n_asked() - (rig.prefetcher.next_is_frozen() ? 1 : 0);
                rig.begin();
                ASSERT_EQ(rig.prefetcher.n_items(), rig.schedules.n_items(pass));
                const std::int64_t n = rig.prefetcher.n_items();
                const std::int64_t end = rng() % 2 == 0 ? n : static_cast<std::int64_t>(rng()) % n;
                rig.read(pass, 0, end);
                if (end < n && rng() % 2 == 0) rig.acquire(pass, end);  // dropped in its reader's hands
                if (end == n) rig.prefetcher.end_pass();
                if (end == n && rng() % 2 == 0) continue;
                rig.prefetcher.rewind(*rig.compute);
                EXPECT_FALSE(rig.prefetcher.next_is_frozen());
                EXPECT_EQ(rig.prefetcher.n_items(), 0);
            }
            EXPECT_TRUE(rig.device.run_all());
            EXPECT_EQ(rig.n_wrong, 0);
        }
    }
}

TEST(PassPrefetcher, ASourceThatThrowsLosesNothing) {
    int n_until_failure = 1;
    Rig rig(Schedule::Random, 0, 3 * 64, 10, [&](std::int64_t) {
        if (--n_until_failure == 0) throw IoError("no program");
        return std::vector<std::size_t>(3, 64);
    });
    EXPECT_THROW(rig.begin(), IoError);
    n_until_failure = 2;
    rig.begin();
    EXPECT_EQ(rig.prefetcher.n_items(), 3);
    rig.acquire(1, 0);
    EXPECT_THROW(rig.release(0), IoError);  // makes room for the next schedule; the item is released all the same
    EXPECT_FALSE(rig.prefetcher.next_is_frozen());
    rig.read(1, 1, 3);
    EXPECT_TRUE(rig.prefetcher.next_is_frozen());
    rig.prefetcher.end_pass();
    rig.begin();
    rig.read(rig.schedules.n_asked() - 1 - (rig.prefetcher.next_is_frozen() ? 1 : 0), 0, 3);
    EXPECT_TRUE(rig.device.run_all());
    EXPECT_EQ(rig.n_wrong, 0);
}

// On a CPU device: threads, a link that takes its time, faults.
class OnCpu {
public:
    OnCpu(std::size_t ring_bytes, double link_bytes_per_second,
          std::function<std::vector<std::size_t>(std::int64_t)> sizes)
        : device({.link_bytes_per_second = link_bytes_per_second, .faults = &faults}),
          compute(device.make_stream(StreamKind::Compute)),
          copies(device.make_stream(StreamKind::CopyIn)),
          memory(device.allocate(ring_bytes, MemoryTag::Ring, "ring")),
          schedules(std::move(sizes)),
          ring(device, {memory.data(), memory.size_bytes()}, *copies, 64),
          prefetcher(ring, schedules, 200) {}

    // Whether item and bytes are those of the `pass`-th schedule.
    [[nodiscard]] bool read(std::int64_t pass, std::int64_t index) {
        const bool right = schedules.is_item(prefetcher.acquire(index, *compute), pass, index);
        prefetcher.release(index, *compute);
        return right;
    }

    CpuFaults faults;
    CpuDevice device;
    std::unique_ptr<Stream> compute, copies;
    Buffer memory;
    PassSchedules schedules;
    TransferRing ring;
    PassPrefetcher prefetcher;
};

// Reads `n_passes` whole passes; a reader that takes `think` for each item.
void read_passes(OnCpu& on, std::int64_t n_passes, std::chrono::microseconds think) {
    for (std::int64_t pass = 0; pass < n_passes; ++pass) {
        on.prefetcher.begin_pass(*on.compute);
        for (std::int64_t i = 0; i < on.prefetcher.n_items(); ++i) {
            ASSERT_TRUE(on.read(pass, i)) << "pass " << pass << " block " << i;
            if (think.count() > 0) std::this_thread::sleep_for(think);
        }
        on.prefetcher.end_pass();
    }
}

TEST(PassPrefetcher, ASlowReaderGetsWhatItShould) {
    std::mt19937 rng(1);
    OnCpu on(3 * 4096, 0.0, [&rng](std::int64_t) { return random_sizes(rng, 4096); });
    read_passes(on, 20, std::chrono::microseconds(50));
}

TEST(PassPrefetcher, ASlowLinkIsKeptBusyAcrossPassBorders) {
    // 6 items of 64 to 256 KiB, a ring of four of the largest: the link's 80 MB/s are the limit, not the reader.
    std::mt19937 rng(2);
    OnCpu on(1 << 20, 80e6, [&rng](std::int64_t) {
        std::vector<std::size_t> sizes(6);
        for (std::size_t& bytes : sizes) bytes = (64 << 10) + rng() % (192 << 10);
        return sizes;
    });
    const auto began = std::chrono::steady_clock::now();
    read_passes(on, 25, std::chrono::microseconds(0));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const double busy_seconds = on.device.link_in().busy_seconds;
    // Told, not judged: the machine may be busy with something else.
    fmt::print("link busy {:.3f} of {:.3f} s over 25 passes\n", busy_seconds / seconds, seconds);
    RecordProperty("link_busy_fraction", fmt::format("{:.3f}", busy_seconds / seconds));
    EXPECT_GE(on.ring.bytes_pushed(), on.device.link_in().bytes);
}

TEST(PassPrefetcher, AFailedCopyIsToldOnceAndRewindMendsIt) {
    for (std::int64_t fault = 1; fault <= 30; ++fault) {
        OnCpu on(4 * 1024, 0.0, [](std::int64_t) { return std::vector<std::size_t>(7, 1000); });
        on.faults.copies_until_failure = fault;
        std::int64_t n_failures = 0;
        for (std::int64_t pass = 0; pass < 6; ++pass) {
            const std::int64_t asked = on.schedules.n_asked() - (on.prefetcher.next_is_frozen() ? 1 : 0);
            on.prefetcher.begin_pass(*on.compute);
            try {
                for (std::int64_t i = 0; i < 7; ++i) ASSERT_TRUE(on.read(asked, i));
                on.prefetcher.end_pass();
            } catch (const IoError& error) {
                EXPECT_THAT(error.what(), testing::HasSubstr("copy of 1000 bytes failed"));
                ++n_failures;
                EXPECT_NO_THROW(on.prefetcher.rewind(*on.compute));
            }
        }
        EXPECT_EQ(n_failures, 1) << fault;
    }
}

TEST(PassPrefetcher, AFailureThatNobodyHasSeenIsToldByRewind) {
    OnCpu on(4 * 1024, 0.0, [](std::int64_t) { return std::vector<std::size_t>(3, 1000); });
    on.faults.copies_until_failure = 2;
    on.prefetcher.begin_pass(*on.compute);
    EXPECT_THROW(on.prefetcher.rewind(*on.compute), IoError);
    EXPECT_NO_THROW(on.prefetcher.rewind(*on.compute));
    const std::int64_t asked = on.schedules.n_asked();
    on.prefetcher.begin_pass(*on.compute);
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_TRUE(on.read(asked, i));
}

// Each copy, record and wait of six passes is refused once at its call: by begin_pass(), acquire(), release() or
// rewind(). After rewind() the next passes read all items right. A begin_pass() that throws needs no rewind().
TEST(PassPrefetcher, ARefusedCallEndsAPassAndNothingElse) {
    for (const Schedule schedule : kSchedules) {
        bool was_refused = true;
        int n_refused_at_begin = 0;
        for (int nth = 1; was_refused; ++nth) {
            Rig rig(schedule, 5, 4 * 1024, 12, [](std::int64_t) { return std::vector<std::size_t>(7, 1000); });
            rig.device.calls_until_refusal = nth;
            int n_refused = 0;
            for (int i = 0; i < 6; ++i) {
                const std::int64_t pass = rig.schedules.n_asked() - (rig.prefetcher.next_is_frozen() ? 1 : 0);
                try {
                    rig.begin();
                } catch (const CudaError&) {
                    ++n_refused;
                    ++n_refused_at_begin;
                    ASSERT_EQ(rig.prefetcher.n_items(), 0) << nth;
                    continue;
                }
                try {
                    rig.read(pass, 0, 7);
                    rig.prefetcher.end_pass();
                    if (i == 3) rig.prefetcher.rewind(*rig.compute);
                } catch (const CudaError&) {
                    ++n_refused;
                    ASSERT_NO_THROW(rig.prefetcher.rewind(*rig.compute));
                }
            }
            was_refused = rig.device.calls_until_refusal == 0;
            ASSERT_TRUE(rig.device.run_all()) << nth;
            EXPECT_LE(n_refused, 1) << nth;
            EXPECT_EQ(rig.n_wrong, 0) << nth;
            EXPECT_GE(rig.n_seen, 5 * 7) << nth;
        }
        EXPECT_GT(n_refused_at_begin, 5);
    }
}

TEST(PassPrefetcherDeathTest, MisuseIsABug) {
    Rig rig(Schedule::Random, 0, 2 * 64, 10, [](std::int64_t) { return std::vector<std::size_t>(3, 64); });
    EXPECT_DEATH(rig.acquire(0, 0), "item 0 of a pass of 0");
    rig.begin();
    EXPECT_DEATH(rig.begin(), "before the previous one has ended");
    EXPECT_DEATH(static_cast<void>(rig.prefetcher.acquire(2, *rig.compute)),
                 "item 2 of a pass of 3: 0 are released, 2 copied");
    EXPECT_DEATH(rig.prefetcher.release(1, *rig.compute), "release of item 1");
    EXPECT_DEATH(rig.prefetcher.end_pass(), "a pass of 3 items ends with 0 released");
    rig.release(0);
    EXPECT_DEATH(static_cast<void>(rig.prefetcher.acquire(0, *rig.compute)), "item 0 of a pass of 3");
    Rig large(Schedule::Random, 0, 64, 10, [](std::int64_t) { return std::vector<std::size_t>(201, 64); });
    EXPECT_DEATH(large.begin(), "a schedule of 201 items, at most 200 are allowed");
}

}  // namespace
}  // namespace slipstream
