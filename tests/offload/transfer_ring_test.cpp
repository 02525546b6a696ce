// TransferRing: what arrives, where, and after what; under schedules that a synchronous device never shows.
#include "offload/transfer_ring.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "offload/ring_parts.h"
#include "tests/offload/scheduled_device.h"

namespace slipstream {
namespace {

struct alignas(64) Line {
    std::byte bytes[64];
};

// Memory for a ring, with a guard behind it.
class Region {
public:
    explicit Region(std::size_t bytes) : lines_(bytes / 64 + 2, Line{}), bytes_(bytes) {
        std::memset(data() + bytes_, 0xA5, 64);
    }
    [[nodiscard]] std::byte* data() { return lines_[0].bytes; }
    [[nodiscard]] std::span<std::byte> span() { return {data(), bytes_}; }
    [[nodiscard]] bool guard_is_whole() {
        return std::all_of(data() + bytes_, data() + bytes_ + 64, [](std::byte b) { return b == std::byte{0xA5}; });
    }

private:
    std::vector<Line> lines_;
    std::size_t bytes_;
};

std::byte pattern(std::int64_t number, std::size_t at) {
    return static_cast<std::byte>(static_cast<std::size_t>(number) * 131 + at * 7 + at / 251);
}

bool holds_pattern(const std::byte* data, std::size_t bytes, std::int64_t number) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (data[i] != pattern(number, i)) return false;
    return true;
}

// A ring on a scheduled device, and items whose bytes tell their number.
class Rig {
public:
    Rig(Schedule schedule, unsigned seed, std::size_t region_bytes, std::int64_t max_items)
        : device(schedule, seed),
          compute(device.make_stream(StreamKind::Compute)),
          copies(device.make_stream(StreamKind::CopyIn)),
          flushes(device.make_stream(StreamKind::CopyOut)),
          other_compute(device.make_stream(StreamKind::Compute)),
          region(region_bytes),
          ring(device, region.span(), *copies, max_items) {}

    // Pushes an item of its own source; `flushed`: written only by the flush stream, which the copy waits for.
    std::int64_t push(std::size_t bytes, bool flushed = false) {
        const std::int64_t number = ring.next_number();
        sources.push_back(std::make_unique<std::vector<std::byte>>(bytes));
        std::vector<std::byte>* source = sources.back().get();
        TransferItem item{.source = source->data(), .bytes = bytes};
        const auto fill = [source, number] {
            for (std::size_t i = 0; i < source->size(); ++i) (*source)[i] = pattern(number, i);
        };
        if (flushed) {
            events.push_back(device.make_event());
            static_cast<ScheduledStream&>(*flushes).call(fill);
            item.after = events.back().get();
            item.after_use = flushes->record(*events.back());
        } else {
            fill();
        }
        sizes.push_back(bytes);
        EXPECT_EQ(ring.push(item), number);
        device.let_run();
        return number;
    }
    // The item is looked at when the compute stream gets there.
    const std::byte* acquire(std::int64_t number) {
        const std::byte* data = ring.acquire(number, *compute);
        const std::size_t bytes = sizes[number];
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
        EXPECT_TRUE(data >= region.data() && data + bytes <= region.data() + region.span().size());
        static_cast<ScheduledStream&>(*compute).call([this, data, bytes, number] {
            n_seen += 1;
            n_wrong += holds_pattern(data, bytes, number) ? 0 : 1;
        });
        device.let_run();
        return data;
    }
    void release(std::int64_t number) {
        ring.release(number, *compute);
        device.let_run();
    }

    ScheduledDevice device;
    std::unique_ptr<Stream> compute, copies, flushes, other_compute;
    Region region;
    std::vector<std::unique_ptr<std::vector<std::byte>>> sources;
    std::vector<std::unique_ptr<Event>> events;
    std::vector<std::size_t> sizes;  // of item k
    std::int64_t n_seen = 0;
    std::int64_t n_wrong = 0;
    TransferRing ring;
};

TEST(TransferRing, EachBlockArrivesUnderEverySchedule) {
    for (const Schedule schedule : kSchedules) {
        for (unsigned seed = 0; seed < 60; ++seed) {
            SCOPED_TRACE(testing::Message() << "schedule " << static_cast<int>(schedule) << " seed " << seed);
            std::mt19937 rng(seed);
            const std::size_t largest = 1 + rng() % 700;
            const std::size_t region_bytes =
                2 * TransferRing::slot_bytes(largest) + (seed % 3 == 0 ? 0 : rng() % (8 * largest));
            Rig rig(schedule, seed, region_bytes, 1 + static_cast<std::int64_t>(rng() % 12));
            std::int64_t first = 0;  // live: [first, next)
            std::int64_t n_looked = 0;
            std::uint64_t bytes = 0;
            for (int step = 0; step < 600; ++step) {
                const std::int64_t next = rig.ring.next_number();
                const std::size_t size = seed % 2 == 0 ? 1 + rng() % largest : largest;
                if (rng() % 2 == 0 && rig.ring.has_room(size)) {
                    rig.push(size, rng() % 4 == 0);
                    bytes += size;
                } else if (first < next) {
                    if (rng() % 3 == 0) {
                        rig.acquire(first + static_cast<std::int64_t>(rng()) % (next - first));
                        ++n_looked;
                    }
                    rig.acquire(first);
                    ++n_looked;
                    rig.release(first++);
                } else {
                    ASSERT_TRUE(rig.ring.has_room(region_bytes));  // whatever went before
                }
            }
            ASSERT_EQ(rig.device.n_synchronised, 0);
            EXPECT_TRUE(rig.device.run_all()) << "streams wait for each other";
            EXPECT_EQ(rig.n_seen, n_looked);
            EXPECT_EQ(rig.n_wrong, 0);
            EXPECT_EQ(rig.device.n_stale_waits, 0);
            EXPECT_EQ(rig.ring.bytes_pushed(), bytes);
            EXPECT_TRUE(rig.region.guard_is_whole());
        }
    }
}

TEST(TransferRing, LiveBlocksNeverOverlap) {
    std::mt19937 rng(5);
    Rig rig(Schedule::Random, 5, 4000, 20);
    std::int64_t first = 0;
    for (int step = 0; step < 2000; ++step) {
        const std::size_t size = 1 + rng() % 1500;
        if (rig.ring.has_room(size)) {
            rig.push(size);
        } else {
            rig.release(first++);
        }
        std::vector<std::pair<const std::byte*, const std::byte*>> places;
        for (std::int64_t k = first; k < rig.ring.next_number(); ++k) {
            const std::byte* data = rig.ring.acquire(k, *rig.compute);
            places.emplace_back(data, data + rig.sizes[k]);
        }
        std::sort(places.begin(), places.end());
        for (std::size_t i = 1; i < places.size(); ++i) ASSERT_LE(places[i - 1].second, places[i].first);
    }
}

TEST(TransferRing, OfNBlocksHoldsNBlocksAtEveryTurn) {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1}, std::size_t{320}}) {
        for (std::int64_t n = 1; n <= 5; ++n) {
            Rig rig(Schedule::CopiesLate, 0, static_cast<std::size_t>(n) * TransferRing::slot_bytes(bytes), 100);
            for (std::int64_t k = 0; k < n; ++k) rig.push(bytes);
            for (std::int64_t k = 0; k < 50; ++k) {
                ASSERT_FALSE(rig.ring.has_room(1)) << k;
                rig.acquire(k);
                rig.release(k);
                ASSERT_TRUE(rig.ring.has_room(bytes)) << k;
                rig.push(bytes);
            }
            EXPECT_TRUE(rig.device.run_all());
            EXPECT_EQ(rig.n_wrong, 0);
        }
    }
}

TEST(TransferRing, HoldsARunWhereverItBegins) {
    for (const std::vector<std::size_t>& run : {std::vector<std::size_t>{64, 256, 128}, {640}, {10, 70, 500, 3}}) {
        std::size_t run_bytes = 0, largest = 0;
        for (const std::size_t bytes : run) {
            run_bytes += TransferRing::slot_bytes(bytes);
            largest = std::max(largest, TransferRing::slot_bytes(bytes));
        }
        const std::size_t enough = TransferRing::region_bytes_for_run(run_bytes, largest);
        const auto holds_everywhere = [&](std::size_t region_bytes) {
            for (std::size_t begin = 64; begin <= region_bytes; begin += 64) {
                Rig rig(Schedule::CopiesLate, 0, region_bytes, 10);
                rig.push(begin);
                rig.release(0);
                for (const std::size_t bytes : run) {
                    if (!rig.ring.has_room(bytes)) return false;
                    rig.push(bytes);
                }
            }
            return true;
        };
        EXPECT_TRUE(holds_everywhere(enough));
        EXPECT_FALSE(holds_everywhere(enough - 64));
    }
}

TEST(TransferRing, WaitsForWhatItCopiesOverAndForNothingElse) {
    // Four slots; the reader has released two of four items, but its stream rests.
    Rig rig(Schedule::CopiesEarly, 0, 4 * 64, 100);
    for (int k = 0; k < 4; ++k) rig.push(64);
    rig.acquire(0);
    rig.release(0);
    rig.acquire(1);
    rig.release(1);
    rig.push(64);
    EXPECT_FALSE(static_cast<ScheduledStream&>(*rig.copies).is_empty());  // waits for item 0's reader
    static_cast<ScheduledStream&>(*rig.compute).step();                   // wait for its arrival
    static_cast<ScheduledStream&>(*rig.compute).step();                   // the look
    rig.device.let_run();
    EXPECT_FALSE(static_cast<ScheduledStream&>(*rig.copies).is_empty());
    static_cast<ScheduledStream&>(*rig.compute).step();  // the release
    rig.device.let_run();
    EXPECT_TRUE(static_cast<ScheduledStream&>(*rig.copies).is_empty());  // not for item 1's
    EXPECT_TRUE(rig.device.run_all());
    EXPECT_EQ(rig.n_wrong, 0);
}

TEST(TransferRing, SeveralReadersInTurn) {
    for (const Schedule schedule : kSchedules) {
        Rig rig(schedule, 1, 1000, 7);
        std::mt19937 rng(9);
        std::int64_t n_wrong = 0;
        for (std::int64_t k = 0; k < 300; ++k) {
            const std::size_t bytes = 1 + rng() % 400;
            ASSERT_EQ(rig.push(bytes), k);
            Stream& reader = rng() % 2 == 0 ? *rig.compute : *rig.other_compute;
            const std::byte* data = rig.ring.acquire(k, reader);
            static_cast<ScheduledStream&>(reader).call(
                [&n_wrong, data, bytes, k] { n_wrong += holds_pattern(data, bytes, k) ? 0 : 1; });
            rig.ring.release(k, reader);
            rig.device.let_run();
        }
        EXPECT_TRUE(rig.device.run_all());
        EXPECT_EQ(n_wrong, 0);
    }
}

TEST(TransferRing, DropsAtAnyMomentLeaveItUsable) {
    for (const Schedule schedule : kSchedules) {
        std::mt19937 rng(3);
        Rig rig(schedule, 3, 3000, 9);
        std::int64_t first = 0;
        for (int step = 0; step < 1500; ++step) {
            const std::size_t size = 1 + rng() % 1400;
            if (rng() % 20 == 0) {
                rig.ring.drop_all(*rig.compute);
                first = rig.ring.next_number();
                ASSERT_TRUE(rig.ring.has_room(3000));
            } else if (rng() % 2 == 0 && rig.ring.has_room(size)) {
                rig.push(size);
            } else if (first < rig.ring.next_number()) {
                rig.acquire(first);
                if (rng() % 2 == 0) rig.release(first++);  // else it may be dropped while its reader is at it
            }
        }
        EXPECT_TRUE(rig.device.run_all());
        EXPECT_EQ(rig.n_wrong, 0);
        EXPECT_GT(rig.n_seen, 300);
    }
}

// On a CPU device: threads, a link that takes its time, faults.
class OnCpu {
public:
    explicit OnCpu(std::size_t region_bytes, double link_bytes_per_second = 0.0)
        : device({.link_bytes_per_second = link_bytes_per_second, .faults = &faults}),
          compute(device.make_stream(StreamKind::Compute)),
          copies(device.make_stream(StreamKind::CopyIn)),
          memory(device.allocate(region_bytes, MemoryTag::Ring, "ring")),
          ring(device, {memory.data(), memory.size_bytes()}, *copies, 16) {}

    std::int64_t push(std::vector<std::byte>& source) {
        const std::int64_t number = ring.next_number();
        for (std::size_t i = 0; i < source.size(); ++i) source[i] = pattern(number, i);
        return ring.push({.source = source.data(), .bytes = source.size()});
    }

    CpuFaults faults;
    CpuDevice device;
    std::unique_ptr<Stream> compute, copies;
    Buffer memory;
    TransferRing ring;
};

TEST(TransferRing, ASlowLinkDeliversInOrder) {
    OnCpu on(1 << 20, 200e6);
    std::vector<std::vector<std::byte>> sources(40);
    std::mt19937 rng(1);
    std::int64_t first = 0;
    std::size_t bytes = 0;
    for (auto& source : sources) {
        source.resize(1 + rng() % 500000);
        bytes += source.size();
        while (!on.ring.has_room(source.size())) {
            const std::vector<std::byte>& oldest = sources[first];
            ASSERT_TRUE(holds_pattern(on.ring.acquire(first, *on.compute), oldest.size(), first));
            on.ring.release(first++, *on.compute);
        }
        on.push(source);
    }
    for (; first < 40; ++first) {
        const std::vector<std::byte>& oldest = sources[first];
        ASSERT_TRUE(holds_pattern(on.ring.acquire(first, *on.compute), oldest.size(), first));
        on.ring.release(first, *on.compute);
    }
    EXPECT_EQ(on.ring.bytes_pushed(), bytes);
    EXPECT_EQ(on.device.link_in().bytes, bytes);
}

TEST(TransferRing, AFailedCopyIsToldByAcquireAndDropsMendIt) {
    OnCpu on(4096);
    std::vector<std::byte> source(1000);
    on.faults.copies_until_failure = 2;
    on.push(source);
    on.copies->synchronize();  // the source is used again
    std::vector<std::byte> second(1000), third(1000);
    on.push(second);
    on.push(third);
    EXPECT_TRUE(holds_pattern(on.ring.acquire(0, *on.compute), 1000, 0));
    EXPECT_THROW(static_cast<void>(on.ring.acquire(1, *on.compute)), IoError);
    EXPECT_THROW(static_cast<void>(on.ring.acquire(2, *on.compute)), IoError);  // behind it
    EXPECT_THROW(on.ring.drop_all(*on.compute), IoError);
    EXPECT_NO_THROW(on.ring.drop_all(*on.compute));
    EXPECT_EQ(on.push(source), 3);
    EXPECT_TRUE(holds_pattern(on.ring.acquire(3, *on.compute), 1000, 3));
}

TEST(TransferRing, ItsEndWaitsForCopiesAndSwallowsTheirFailure) {
    std::vector<std::byte> source(100000);
    {
        OnCpu on(1 << 20, 50e6);
        for (int k = 0; k < 5; ++k) on.ring.push({.source = source.data(), .bytes = source.size()});
        on.faults.copies_until_failure = 1;
    }
    source.assign(1, std::byte{0});
}

TEST(TransferRingDeathTest, MisuseIsABug) {
    Rig rig(Schedule::CopiesLate, 0, 256, 2);
    EXPECT_DEATH(rig.push(257), "no room for 257 bytes in a ring of 256");
    EXPECT_DEATH(rig.ring.push({.source = nullptr, .bytes = 1}), "an item of 1 bytes");
    EXPECT_DEATH(rig.push(0), "an item of 0 bytes");
    EXPECT_DEATH(static_cast<void>(rig.ring.acquire(0, *rig.compute)), "item 0 of the ring");
    rig.push(10);
    rig.push(10);
    EXPECT_DEATH(rig.push(10), "2 items are not released");  // at most two at once
    EXPECT_DEATH(rig.ring.release(1, *rig.compute), "release of item 1, but the ring holds items 0 to 1");
    rig.release(0);
    EXPECT_DEATH(static_cast<void>(rig.ring.acquire(0, *rig.compute)), "which holds items 1 to 1");
    EXPECT_DEATH(rig.ring.release(0, *rig.compute), "release of item 0, but the ring holds items 1 to 1");
    Region region(1000);
    EXPECT_DEATH(TransferRing(rig.device, region.span().subspan(1), *rig.copies, 2), "a ring for 2 items");
    EXPECT_DEATH(TransferRing(rig.device, region.span(), *rig.copies, 0), "a ring for 0 items");
}

TEST(RingParts, HoldTwoOfEachKind) {
    const auto parts_of = [](std::size_t bytes, const RingSlots& slots) {
        const RingParts parts = divide_ring(bytes, slots);
        EXPECT_EQ(parts.scheduled + parts.on_demand, bytes);
        return parts;
    };
    EXPECT_EQ(parts_of(1000, {.scheduled = 640}).scheduled, 1000U);  // a lone kind has all of it
    EXPECT_EQ(parts_of(1280, {.on_demand = 640}).on_demand, 1280U);
    EXPECT_EQ(parts_of(64000, {.scheduled = 640, .on_demand = 640}).on_demand, 16000U);
    for (const std::size_t scheduled : {64, 640, 6400}) {
        for (const std::size_t on_demand : {64, 640, 6400}) {
            const RingSlots slots{scheduled, on_demand};
            for (std::size_t bytes = slots.least_ring_bytes(); bytes < 40000; bytes += 37) {
                const RingParts parts = parts_of(bytes, slots);
                EXPECT_GE(parts.scheduled, 2 * scheduled);
                EXPECT_GE(parts.on_demand, 2 * on_demand);
                EXPECT_EQ(parts.scheduled % 64, 0U);
            }
            EXPECT_DEATH(static_cast<void>(divide_ring(slots.least_ring_bytes() - 1, slots)), "a ring of");
        }
    }
}

}  // namespace
}  // namespace slipstream
