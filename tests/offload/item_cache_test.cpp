// ItemCache: what is in slots, passes that end, fail or are given up; under schedules that a synchronous device never
// shows.
#include "offload/item_cache.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "tests/offload/scheduled_device.h"

namespace slipstream {
namespace {

struct alignas(64) Line {
    std::byte bytes[64];
};

std::byte pattern(std::size_t group, std::int32_t item, std::size_t at) {
    return static_cast<std::byte>(group * 57 + static_cast<std::size_t>(item) * 131 + at * 7 + at / 251);
}

/// Items in host memory, whose bytes tell their numbers, and memory for their slots.
class Items {
public:
    explicit Items(std::vector<ItemCache::Group> of) : groups(std::move(of)) {
        for (std::size_t group = 0; group < groups.size(); ++group) {
            sources_.emplace_back();
            for (std::int32_t item = 0; item < groups[group].n_items; ++item) {
                std::vector<std::byte>& source = sources_.back().emplace_back(bytes(group, item));
                for (std::size_t i = 0; i < source.size(); ++i) source[i] = pattern(group, item, i);
            }
        }
        lines_.resize(ItemCache::region_bytes(groups) / sizeof(Line));
    }
    /// The last item of a group is its largest.
    [[nodiscard]] std::size_t bytes(std::size_t group, std::int32_t item) const {
        const auto less = static_cast<std::size_t>(groups[group].n_items - 1 - item);
        return groups[group].item_bytes - std::min(less, groups[group].item_bytes / 2);
    }
    [[nodiscard]] TransferItem copy(std::size_t group, std::int32_t item) const {
        return {.source = sources_[group][item].data(), .bytes = bytes(group, item)};
    }
    [[nodiscard]] bool are_at(const std::byte* data, std::size_t group, std::int32_t item) const {
        for (std::size_t i = 0; i < bytes(group, item); ++i)
            if (data[i] != pattern(group, item, i)) return false;
        return true;
    }
    [[nodiscard]] std::span<std::byte> region() {
        return {lines_.empty() ? nullptr : lines_.front().bytes, lines_.size() * sizeof(Line)};
    }

    std::vector<ItemCache::Group> groups;

private:
    std::vector<std::vector<std::vector<std::byte>>> sources_;
    std::vector<Line> lines_;
};

Items random_items(std::mt19937& rng) {
    std::vector<ItemCache::Group> groups(1 + rng() % 4);
    for (ItemCache::Group& group : groups) {
        group = {.item_bytes = 1 + rng() % 500, .n_items = static_cast<std::int32_t>(1 + rng() % 9)};
        group.n_slots = static_cast<std::int32_t>(rng() % (static_cast<unsigned>(group.n_items) + 1));
    }
    return Items(groups);
}

// Passes as a runtime makes them: of each group some items are needed, in any order those that are held, then the
// others, while there are slots; some of them take those of items that the pass does not need. Some passes are
// given up, some refused by the device at any call.
TEST(ItemCache, EachItemIsInItsSlotUnderEverySchedule) {
    std::int64_t n_refused = 0;
    std::int64_t n_evicted = 0;
    for (const Schedule schedule : kSchedules) {
        for (unsigned seed = 0; seed < 60; ++seed) {
            SCOPED_TRACE(testing::Message() << "schedule " << static_cast<int>(schedule) << " seed " << seed);
            std::mt19937 rng(seed);
            Items items = random_items(rng);
            ScheduledDevice device(schedule, seed);
            const auto compute = device.make_stream(StreamKind::Compute);
            const auto copies = device.make_stream(StreamKind::CopyIn);
            ItemCache cache(device, items.region(), items.groups, *copies);
            std::set<std::pair<std::size_t, std::int32_t>> held;  // after the last pass
            std::int64_t n_seen = 0, n_looked = 0, n_wrong = 0;
            const auto look = [&](std::size_t group, std::int32_t item) {
                const std::byte* data = cache.acquire(static_cast<std::int64_t>(group), item, *compute);
                ++n_looked;
                static_cast<ScheduledStream&>(*compute).call([&, data, group, item] {
                    ++n_seen;
                    n_wrong += items.are_at(data, group, item) ? 0 : 1;
                });
                device.let_run();
            };
            for (int pass = 0; pass < 60; ++pass) {
                auto loaded = held;
                device.calls_until_refusal = rng() % 4 == 0 ? static_cast<int>(1 + rng() % 12) : 0;
                const bool gives_up = rng() % 6 == 0;
                bool ends = true;
                try {
                    for (std::size_t group = 0; group < items.groups.size(); ++group) {
                        const auto number = static_cast<std::int64_t>(group);
                        std::vector<std::int32_t> missed;
                        std::vector<std::int32_t> idle;  // held, and not needed
                        for (std::int32_t item = 0; item < items.groups[group].n_items; ++item) {
                            if (rng() % 3 > 0) {
                                if (held.contains({group, item})) idle.push_back(item);
                                continue;
                            }
                            ASSERT_EQ(cache.holds(static_cast<std::int64_t>(group), item),
                                      held.contains({group, item}));
                            if (held.contains({group, item}))
                                look(group, item);
                            else
                                missed.push_back(item);
                        }
                        while (!idle.empty() && rng() % 2 == 0 && cache.n_free(number) < std::ssize(missed)) {
                            cache.evict(number, idle.back(), *compute);
                            device.let_run();
                            held.erase({group, idle.back()});
                            loaded.erase({group, idle.back()});
                            idle.pop_back();
                            ++n_evicted;
                        }
                        std::vector<std::int32_t> got;
                        for (const std::int32_t item : missed) {
                            if (!cache.has_free_slot(number)) break;
                            cache.load(static_cast<std::int64_t>(group), item, items.copy(group, item));
                            device.let_run();
                            loaded.insert({group, item});
                            got.push_back(item);
                        }
                        for (const std::int32_t item : got) look(group, item);
                        if (gives_up && rng() % 2 == 0) {
                            ends = false;
                            break;
                        }
                    }
                } catch (const CudaError&) {
                    ends = false;
                    ++n_refused;
                }
                device.calls_until_refusal = 0;
                if (ends) {
                    cache.keep_loaded();
                    held = loaded;
                } else {
                    cache.drop_loaded(*compute);
                }
                bool is_full = true;
                for (std::size_t group = 0; group < items.groups.size(); ++group) {
                    const auto n = std::ranges::count_if(held, [&](const auto& one) { return one.first == group; });
                    ASSERT_EQ(cache.has_free_slot(static_cast<std::int64_t>(group)), n < items.groups[group].n_slots);
                    is_full = is_full && n == items.groups[group].n_slots;
                }
                ASSERT_EQ(cache.is_full(), is_full);
            }
            EXPECT_TRUE(device.run_all()) << "streams wait for each other";
            EXPECT_EQ(n_seen, n_looked);
            EXPECT_EQ(n_wrong, 0);
            EXPECT_EQ(device.n_stale_waits, 0);
        }
    }
    EXPECT_GT(n_refused, 100);
    EXPECT_GT(n_evicted, 1000);
}

// Neither the host nor a stream waits for an item that was seen to arrive; passes that load nothing drop nothing.
TEST(ItemCache, WhatHasArrivedIsNotWaitedFor) {
    Items items({{.item_bytes = 100, .n_items = 3, .n_slots = 2}});
    ScheduledDevice device(Schedule::CopiesLate, 0);
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    ItemCache cache(device, items.region(), items.groups, *copies);
    cache.load(0, 1, items.copy(0, 1));
    static_cast<void>(cache.acquire(0, 1, *compute));
    EXPECT_FALSE(static_cast<ScheduledStream&>(*compute).is_empty()) << "it waits";
    cache.keep_loaded();
    ASSERT_TRUE(device.run_all());
    static_cast<void>(cache.acquire(0, 1, *compute));  // the host sees that it is there
    ASSERT_TRUE(device.run_all());
    device.calls_until_refusal = 1;
    static_cast<void>(cache.acquire(0, 1, *compute));
    EXPECT_TRUE(static_cast<ScheduledStream&>(*compute).is_empty());
    cache.drop_loaded(*compute);
    EXPECT_EQ(device.n_synchronised, 0);
    EXPECT_TRUE(cache.holds(0, 1));
    device.calls_until_refusal = 0;
}

// The last slots of all groups are the end of the region.
TEST(ItemCache, SlotsLieBySlotThenByGroup) {
    Items items({{.item_bytes = 64, .n_items = 3, .n_slots = 3},
                 {.item_bytes = 100, .n_items = 4, .n_slots = 2},
                 {.item_bytes = 0, .n_items = 0, .n_slots = 0},
                 {.item_bytes = 10, .n_items = 2, .n_slots = 2}});
    EXPECT_EQ(ItemCache::region_bytes(items.groups), 3U * 64 + 2 * 128 + 2 * 64);
    CpuDevice device({.n_threads = 1});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    ItemCache cache(device, items.region(), items.groups, *copies);
    std::vector<std::ptrdiff_t> places;
    for (const std::size_t group : {0, 1, 3}) {
        for (std::int32_t item = items.groups[group].n_items - 1; cache.has_free_slot(static_cast<std::int64_t>(group));
             --item) {
            cache.load(static_cast<std::int64_t>(group), item, items.copy(group, item));
            const std::byte* data = cache.acquire(static_cast<std::int64_t>(group), item, *compute);
            EXPECT_TRUE(items.are_at(data, group, item));
            places.push_back(data - items.region().data());
        }
    }
    EXPECT_EQ(places, (std::vector<std::ptrdiff_t>{0, 256, 512, 64, 320, 192, 448}));
    EXPECT_TRUE(cache.is_full());
}

// A copy that fails or stalls is told by acquire(); what the pass had loaded is gone, what passes had before is not.
TEST(ItemCache, AFailedCopyEndsThePassAndNothingElse) {
    for (const bool stalls : {false, true}) {
        CpuFaults faults;
        faults.stall_after = std::chrono::milliseconds(20);
        CpuDevice device({.n_threads = 1, .faults = &faults});
        Items items({{.item_bytes = 5000, .n_items = 6, .n_slots = 4}});
        const auto compute = device.make_stream(StreamKind::Compute);
        const auto copies = device.make_stream(StreamKind::CopyIn);
        ItemCache cache(device, items.region(), items.groups, *copies);
        cache.load(0, 5, items.copy(0, 5));
        static_cast<void>(cache.acquire(0, 5, *compute));
        cache.keep_loaded();
        (stalls ? faults.copies_until_stall : faults.copies_until_failure) = 2;
        for (const std::int32_t item : {0, 2, 3}) cache.load(0, item, items.copy(0, item));
        EXPECT_FALSE(cache.has_free_slot(0));
        static_cast<void>(cache.acquire(0, 0, *compute));
        EXPECT_THROW(static_cast<void>(cache.acquire(0, 2, *compute)), IoError);
        EXPECT_THROW(cache.drop_loaded(*compute), IoError);
        for (std::int32_t item = 0; item < 6; ++item) EXPECT_EQ(cache.holds(0, item), item == 5);
        for (const std::int32_t item : {2, 3, 4}) cache.load(0, item, items.copy(0, item));
        for (const std::int32_t item : {2, 3, 4, 5})
            EXPECT_TRUE(items.are_at(cache.acquire(0, item, *compute), 0, item)) << item;
    }
}

TEST(ItemCache, CopiesHaveTheirTimes) {
    CpuDevice device({.n_threads = 1, .link_bytes_per_second = 1e6});
    Items items({{.item_bytes = 20000, .n_items = 2, .n_slots = 2}});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    ItemCache cache(device, items.region(), items.groups, *copies);
    cache.time_copies();
    cache.load(0, 1, items.copy(0, 1));
    static_cast<void>(cache.acquire(0, 1, *compute));
    const CopyTimes times = cache.copy_times(0, 1);
    EXPECT_TRUE(times.is_measured);
    EXPECT_GT(times.end - times.begin, std::chrono::milliseconds(10));
}

TEST(ItemCacheDeathTest, MisuseIsABug) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork alone has no thread that copies
    CpuDevice device({.n_threads = 1});
    Items items({{.item_bytes = 100, .n_items = 3, .n_slots = 1}});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    ItemCache cache(device, items.region(), items.groups, *copies);
    EXPECT_DEATH(static_cast<void>(cache.acquire(0, 1, *compute)), "item 1 of group 0 has no slot");
    cache.load(0, 1, items.copy(0, 1));
    EXPECT_DEATH(cache.load(0, 1, items.copy(0, 1)), "item 1 of group 0 has a slot, or there is none");
    EXPECT_DEATH(cache.load(0, 2, items.copy(0, 2)), "item 2 of group 0 has a slot, or there is none");
    EXPECT_DEATH(cache.evict(0, 1, *compute), "item 1 of group 0 has no slot to lose") << "loaded by the running pass";
    cache.keep_loaded();
    EXPECT_DEATH(cache.evict(0, 0, *compute), "item 0 of group 0 has no slot to lose");
    EXPECT_DEATH(ItemCache(device, items.region().first(64), items.groups, *copies), "in a region of 64");
}

}  // namespace
}  // namespace slipstream
