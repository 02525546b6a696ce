// In steady state a pass through the prefetcher, and one that loads into slots, allocates nothing, on any thread. Every
// operator new of this program is counted.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "offload/item_cache.h"
#include "offload/pass_prefetcher.h"
#include "tests/support/allocation_counter.h"

namespace slipstream {
namespace {

// The same blocks in every pass, one more each second pass.
class GrowingSchedules final : public ScheduleSource {
public:
    explicit GrowingSchedules(const std::vector<std::byte>& source) : source_(&source) {}
    void next_schedule(std::vector<TransferItem>& schedule) override {
        schedule.clear();
        for (std::size_t i = 0; i < 10 + n_asked_ / 2; ++i)
            schedule.push_back({.source = source_->data() + i, .bytes = 1000 + 997 * i % 3000});
        ++n_asked_;
    }

private:
    const std::vector<std::byte>* source_;
    std::size_t n_asked_ = 0;
};

TEST(SteadyState, PassesAllocateNothing) {
    const std::vector<std::byte> source(8192, std::byte{7});
    CpuDevice device({.link_bytes_per_second = 500e6});
    const std::unique_ptr<Stream> compute = device.make_stream(StreamKind::Compute);
    const std::unique_ptr<Stream> copies = device.make_stream(StreamKind::CopyIn);
    const Buffer memory = device.allocate(20000, MemoryTag::Ring, "ring");
    GrowingSchedules schedules(source);
    TransferRing ring(device, {memory.data(), memory.size_bytes()}, *copies, 64);
    PassPrefetcher prefetcher(ring, schedules, 100);
    AllocationCounts before = allocations();
    std::int64_t n_wrong = 0;
    for (int pass = 0; pass < 60; ++pass) {
        if (pass == 1) before = allocations();
        prefetcher.begin_pass(*compute);
        for (std::int64_t i = 0; i < prefetcher.n_items(); ++i) {
            n_wrong += *prefetcher.acquire(i, *compute) == std::byte{7} ? 0 : 1;
            prefetcher.release(i, *compute);
        }
        prefetcher.end_pass();
        if (pass == 30) prefetcher.rewind(*compute);
    }
    const AllocationCounts during = allocations() - before;
    EXPECT_EQ(during.n, 0) << during.bytes << " bytes";
    EXPECT_EQ(n_wrong, 0);
    EXPECT_GT(allocations().n, 0);  // the counter counts
}

TEST(SteadyState, LoadingIntoSlotsAllocatesNothing) {
    const std::vector<std::byte> source(8192, std::byte{7});
    CpuDevice device({.link_bytes_per_second = 500e6});
    const std::unique_ptr<Stream> compute = device.make_stream(StreamKind::Compute);
    const std::unique_ptr<Stream> copies = device.make_stream(StreamKind::CopyIn);
    const std::vector<ItemCache::Group> groups(3, {.item_bytes = 8192, .n_items = 8, .n_slots = 5});
    const Buffer memory = device.allocate(ItemCache::region_bytes(groups), MemoryTag::Weights, "slots");
    ItemCache cache(device, {memory.data(), memory.size_bytes()}, groups, *copies);
    AllocationCounts before = allocations();
    std::int64_t n_loaded = 0;
    for (std::int32_t pass = 0; pass < 40; ++pass) {
        if (pass == 1) before = allocations();
        for (std::int64_t group = 0; group < 3; ++group) {
            const std::int32_t item = pass % 8;
            if (!cache.holds(group, item)) {
                if (!cache.has_free_slot(group)) continue;
                cache.load(group, item, {.source = source.data(), .bytes = source.size()});
                ++n_loaded;
            }
            static_cast<void>(cache.acquire(group, item, *compute));
        }
        if (pass < 20)
            cache.drop_loaded(*compute);
        else
            cache.keep_loaded();
    }
    const AllocationCounts during = allocations() - before;
    EXPECT_EQ(during.n, 0) << during.bytes << " bytes";
    EXPECT_EQ(n_loaded, 3 * (20 + 5));
}

}  // namespace
}  // namespace slipstream
