// simulate_passes(): small schedules whose time can be worked out by hand. An item is 64 bytes (a slot of the ring is a
// multiple of that), the link takes a second for it.
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "offload/residency_plan.h"

namespace slipstream {
namespace {

constexpr std::size_t kBlock = 64;

PlanItem block(double compute_seconds, double host_bytes = 0.0) {
    return {.bytes = kBlock,
            .unit_bytes = kBlock,
            .transfer_bytes = kBlock,
            .compute_seconds = compute_seconds,
            .host_bytes = host_bytes};
}

ResidencyRequest request_of(std::vector<PlanItem> schedule) {
    return {.schedule = std::move(schedule), .link_bytes_per_second = kBlock};
}

SimulatedPass streamed(const ResidencyRequest& request, std::size_t ring_blocks) {
    return simulate_passes(request, std::vector<std::size_t>(request.schedule.size(), 0), ring_blocks * kBlock);
}

TEST(PassSimulation, WithoutStreamingTimesAddUp) {
    ResidencyRequest request = request_of({block(1.0), block(2.0), block(3.0)});
    request.fixed_seconds = 0.5;
    request.link_bytes_per_second = 0.0;
    const SimulatedPass pass = simulate_passes(request, {kBlock, kBlock, kBlock}, 0);
    EXPECT_DOUBLE_EQ(pass.seconds, 6.5);
    EXPECT_EQ(pass.link_busy_fraction, 0.0);
}

TEST(PassSimulation, TheSlowerOfLinkAndDeviceDecides) {
    const SimulatedPass link = streamed(request_of({4, block(0.25)}), 4);
    EXPECT_DOUBLE_EQ(link.seconds, 4.0);
    EXPECT_DOUBLE_EQ(link.link_busy_fraction, 1.0);
    const SimulatedPass device = streamed(request_of({4, block(2.0)}), 2);
    EXPECT_DOUBLE_EQ(device.seconds, 8.0);
    EXPECT_DOUBLE_EQ(device.link_busy_fraction, 0.5);
}

TEST(PassSimulation, ARingOfOneBlockTakesTurns) {
    const SimulatedPass pass = streamed(request_of({4, block(2.0)}), 1);
    EXPECT_DOUBLE_EQ(pass.seconds, 4 * (1.0 + 2.0));
    EXPECT_NEAR(pass.link_busy_fraction, 1.0 / 3.0, 1e-12);
}

TEST(PassSimulation, TheRingFillsWhileTheDeviceDoesOtherThings) {
    ResidencyRequest request = request_of({4, block(0.0)});
    request.fixed_seconds = 2.0;
    // One item comes in the two seconds, the other three after them; with room for two the link never rests.
    EXPECT_DOUBLE_EQ(streamed(request, 1).seconds, 5.0);
    EXPECT_DOUBLE_EQ(streamed(request, 2).seconds, 4.0);
    request.fixed_seconds = 10.0;
    // All that may come ahead is the next pass.
    EXPECT_DOUBLE_EQ(streamed(request, 100).seconds, 10.0);
    EXPECT_DOUBLE_EQ(streamed(request, 100).link_busy_fraction, 0.4);
}

TEST(PassSimulation, ResidentBlocksGiveTheLinkTime) {
    // A second of link and a second of computing for each; two of four are resident.
    const ResidencyRequest request = request_of({4, block(1.0)});
    EXPECT_DOUBLE_EQ(simulate_passes(request, {kBlock, 0, kBlock, 0}, kBlock).seconds, 4.0);
    // In one run, with room for one item: its copy is hidden, the other's is not.
    EXPECT_DOUBLE_EQ(simulate_passes(request, {kBlock, kBlock, 0, 0}, kBlock).seconds, 5.0);
}

TEST(PassSimulation, HostMemoryIsShared) {
    // 64 bytes come over the link, 64 are read by computing: 128 at 64 a second.
    ResidencyRequest request = request_of({block(1.0, kBlock)});
    EXPECT_DOUBLE_EQ(streamed(request, 2).seconds, 1.0);
    request.memory_bytes_per_second = kBlock;
    EXPECT_NEAR(streamed(request, 2).seconds, 2.0, 1e-9);
    request.host_bytes_per_copied_byte = 2.0;
    EXPECT_NEAR(streamed(request, 2).seconds, 3.0, 1e-9);
    // Memory that holds both apart changes nothing.
    request.memory_bytes_per_second = 3.0 * kBlock;
    EXPECT_NEAR(streamed(request, 2).seconds, 1.0, 1e-9);
    // A device with its own memory leaves the host's to the link.
    request = request_of({block(1.0)});
    request.memory_bytes_per_second = kBlock / 2.0;
    EXPECT_NEAR(streamed(request, 2).seconds, 2.0, 1e-9);
}

TEST(PassSimulation, ComputingIsNoFasterThanItsMemory) {
    ResidencyRequest request = request_of({block(0.0, 4.0 * kBlock)});
    request.memory_bytes_per_second = kBlock;
    EXPECT_DOUBLE_EQ(simulate_passes(request, {kBlock}, 0).seconds, 4.0);
}

TEST(PassSimulation, AnItemIsCopiedAndComputedUnitByUnit) {
    // Ten pieces of 64 bytes, each a second of link and half a second of computing: hidden but for the last one, once.
    PlanItem kv{.tag = PlanTag::Kv,
                .bytes = 10 * kBlock,
                .unit_bytes = kBlock,
                .transfer_bytes = kBlock,
                .compute_seconds = 5.0};
    ResidencyRequest request = request_of({kv});
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 2 * kBlock).seconds, 10.0);
    EXPECT_DOUBLE_EQ(simulate_passes(request, {4 * kBlock}, 4 * kBlock).seconds, 6.0);
    // In one piece copy and computing still overlap, from pass to pass, where the ring holds two of it.
    request.schedule[0].unit_bytes = request.schedule[0].transfer_bytes = 10 * kBlock;
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 10 * kBlock).seconds, 15.0);
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 20 * kBlock).seconds, 10.0);
}

TEST(PassSimulation, CopiesAreCutWhereFourWouldNotFit) {
    // 16 items that may go in one copy: a ring of 16 takes four at a time, and while a piece of four seconds is on its
    // way the one before is computed.
    PlanItem kv{.tag = PlanTag::Kv,
                .bytes = 16 * kBlock,
                .unit_bytes = kBlock,
                .transfer_bytes = 16 * kBlock,
                .compute_seconds = 16.0};
    const ResidencyRequest request = request_of({kv});
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 16 * kBlock).seconds, 16.0);
    // One by one, with room for two: none waits.
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 2 * kBlock).seconds, 16.0);
    // All of it at once where that is a unit.
    ResidencyRequest whole = request;
    whole.schedule[0].unit_bytes = 16 * kBlock;
    EXPECT_DOUBLE_EQ(simulate_passes(whole, {0}, 16 * kBlock).seconds, 32.0);
}

TEST(PassSimulation, OfAWindowOnlyTheEndIsRead) {
    PlanItem kv{.tag = PlanTag::Kv,
                .bytes = 10 * kBlock,
                .unit_bytes = kBlock,
                .transfer_bytes = 4 * kBlock,
                .read_bytes = 3 * kBlock,
                .compute_seconds = 0.3};
    const ResidencyRequest request = request_of({kv});
    EXPECT_DOUBLE_EQ(simulate_passes(request, {0}, 8 * kBlock).seconds, 3.0);
    EXPECT_DOUBLE_EQ(simulate_passes(request, {7 * kBlock}, 8 * kBlock).seconds, 3.0);
    EXPECT_DOUBLE_EQ(simulate_passes(request, {8 * kBlock}, 8 * kBlock).seconds, 2.0);
    EXPECT_DOUBLE_EQ(simulate_passes(request, {10 * kBlock}, 0).seconds, 0.3);
    // More than there is counts as all of it.
    EXPECT_DOUBLE_EQ(simulate_passes(request, {99 * kBlock}, 0).seconds, 0.3);
}

TEST(PassSimulation, AnEmptyBlockIsOnlyComputed) {
    PlanItem nothing{.tag = PlanTag::Kv, .compute_seconds = 0.25};
    EXPECT_DOUBLE_EQ(simulate_passes(request_of({nothing, block(0.5)}), {0, 0}, kBlock).seconds, 1.5);
}

TEST(PassSimulation, ABlockLargerThanTheRingIsABug) {
    EXPECT_DEATH(static_cast<void>(simulate_passes(request_of({block(1.0)}), {0}, kBlock - 1)), "does not fit");
}

PlanItem on_demand(double compute_seconds, double share = 1.0) {
    PlanItem item = block(compute_seconds);
    item.tag = PlanTag::OnDemand;
    item.read_share = item.slot_saves = share;
    return item;
}

TEST(PassSimulation, WhatIsDemandedComesWhenItIsItsTurn) {
    // Four seconds of other things, then a second of copying, and of computing what came. No copy runs ahead.
    EXPECT_DOUBLE_EQ(streamed(request_of({block(0.0), on_demand(1.0)}), 4).seconds, 1.0 + 1.0 + 1.0);
    ResidencyRequest request = request_of({block(4.0), on_demand(1.0)});
    request.fixed_seconds = 2.0;
    const SimulatedPass pass = simulate_passes(request, {kBlock, 0}, 2 * kBlock);
    EXPECT_DOUBLE_EQ(pass.seconds, 4.0 + 1.0 + 1.0 + 2.0);
    EXPECT_DOUBLE_EQ(pass.link_busy_fraction, 1.0 / 8.0);
}

TEST(PassSimulation, ARunOnDemandIsComputedWhileItIsCopied) {
    // Eight items, half of them on the device, of which a pass reads a quarter: one is copied, two are computed.
    ResidencyRequest request = request_of({8, on_demand(0.25 * 3.0, 0.25)});
    const std::vector<std::size_t> half{kBlock, kBlock, kBlock, kBlock, 0, 0, 0, 0};
    EXPECT_DOUBLE_EQ(simulate_passes(request, half, 2 * kBlock).seconds, 6.0);
    // A slower link: four seconds of copying, then three of computing what came.
    request.link_bytes_per_second = kBlock / 4.0;
    EXPECT_DOUBLE_EQ(simulate_passes(request, half, 2 * kBlock).seconds, 7.0);
    // Where less than one is expected, the computing that waits is as little as that.
    const std::vector<std::size_t> all_but_one{kBlock, kBlock, kBlock, kBlock, kBlock, kBlock, kBlock, 0};
    EXPECT_DOUBLE_EQ(simulate_passes(request, all_but_one, 2 * kBlock).seconds, 6.0);
    request.link_bytes_per_second = kBlock / 40.0;
    EXPECT_DOUBLE_EQ(simulate_passes(request, all_but_one, 2 * kBlock).seconds, 10.0 + 0.75);
}

// With slots, what is copied is what the items without one save; what is computed is what is read.
TEST(PassSimulation, OfSlotsTheExpectedCopiesCount) {
    // A quarter of eight items is read, three seconds of computing each. Four slots leave half a copy.
    ResidencyRequest request = request_of({8, on_demand(0.25 * 3.0, 0.25)});
    for (std::size_t i = 0; i < 8; ++i) request.schedule[i].slot_saves = i < 4 ? 0.375 : 0.125;
    request.link_bytes_per_second = kBlock / 40.0;
    const std::vector<std::size_t> half{kBlock, kBlock, kBlock, kBlock, 0, 0, 0, 0};
    request.has_slots = true;
    EXPECT_DOUBLE_EQ(simulate_passes(request, half, 2 * kBlock).seconds, 0.5 * 40.0 + 0.5 * 3.0);
    EXPECT_DOUBLE_EQ(copied_bytes(request, half).on_demand, 0.5 * kBlock);
    // Fixed: a copy, and then computing it.
    request.has_slots = false;
    EXPECT_DOUBLE_EQ(simulate_passes(request, half, 2 * kBlock).seconds, 40.0 + 3.0);
    EXPECT_DOUBLE_EQ(copied_bytes(request, half).on_demand, 1.0 * kBlock);
}

TEST(PassSimulation, WhatIsDemandedSharesTheLinkWithScheduledCopies) {
    // A second of copying for each of the four blocks of the next pass and the two that are demanded; the ring has room
    // for all, so that the link never rests.
    const ResidencyRequest request =
        request_of({on_demand(0.0), on_demand(0.0), block(0.0), block(0.0), block(0.0), block(0.0)});
    const SimulatedPass pass = streamed(request, 32);
    EXPECT_NEAR(pass.seconds, 6.0, 1e-9);
    EXPECT_NEAR(pass.link_busy_fraction, 1.0, 1e-9);
}

// Whatever the schedule: never faster than link or device alone, never slower than both one after the other.
TEST(PassSimulation, LiesBetweenItsBounds) {
    std::mt19937 random(1);
    const auto drawn = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    for (int round = 0; round < 300; ++round) {
        ResidencyRequest request;
        std::vector<std::size_t> resident;
        double compute = 0.0;
        double copied = 0.0;
        for (int i = drawn(1, 30); i > 0; --i) {
            PlanItem item = drawn(0, 2) == 0 ? on_demand(drawn(0, 100) / 100.0, drawn(1, 100) / 100.0)
                                             : block(drawn(0, 100) / 100.0);
            item.bytes = static_cast<std::size_t>(drawn(1, 10)) * 32;
            item.transfer_bytes = item.bytes;
            request.schedule.push_back(item);
            resident.push_back(drawn(0, 2) == 0 ? item.bytes : 0);
            compute += item.compute_seconds;
            copied += item.read_share * static_cast<double>(item.bytes - resident.back());
        }
        request.link_bytes_per_second = drawn(50, 2000);
        request.fixed_seconds = drawn(0, 3) / 2.0;
        const double link = copied / request.link_bytes_per_second;
        const double device = compute + request.fixed_seconds;
        const double seconds = simulate_passes(request, resident, 1280U * static_cast<unsigned>(drawn(1, 20))).seconds;
        EXPECT_GE(seconds, std::max(link, device) * (1.0 - 1e-9)) << "round " << round;
        EXPECT_LE(seconds, (link + device) * (1.0 + 1e-9)) << "round " << round;
    }
}

// Two devices that take turns, a link of an item a second each: both links are busy all the time.
TEST(PassSimulation, TheRingOfADeviceFillsWhileTheOtherComputes) {
    const ResidencyRequest half = request_of({4, block(0.25)});
    const std::vector<std::size_t> nothing(4, 0);
    const SimulatedDevice device{&half, &nothing, 2 * kBlock};
    const std::vector<SimulatedDevice> devices{device, device};
    const SimulatedPass in_turn = simulate_passes(devices, std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1});
    EXPECT_NEAR(in_turn.seconds, 4.0, 1e-9);
    EXPECT_NEAR(in_turn.link_busy_fraction, 1.0, 1e-9);
    // One after the other each link waits for half a pass, but for what its ring holds.
    const SimulatedPass in_blocks = simulate_passes(devices, std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
    EXPECT_GT(in_blocks.seconds, 4.4);
}

// A device without a link computes its items while the other's link brings the rest.
TEST(PassSimulation, ComputingInPlaceGoesBesideStreaming) {
    const ResidencyRequest streams = request_of({2, block(0.0)});
    const ResidencyRequest stays = request_of({2, block(1.0)});
    const std::vector<std::size_t> nothing(2, 0);
    const std::vector<std::size_t> all(2, kBlock);
    const std::vector<SimulatedDevice> devices{{&streams, &nothing, 2 * kBlock}, {&stays, &all, 0}};
    EXPECT_NEAR(simulate_passes(devices, std::vector<std::int32_t>{0, 1, 0, 1}).seconds, 2.0, 1e-9);
}

// Two links and a device on one memory: what they ask of it together is what a pass takes.
TEST(PassSimulation, HostMemoryIsSharedByAllLinks) {
    ResidencyRequest half = request_of({4, block(0.0)});
    half.memory_bytes_per_second = kBlock;  // of two that the links would take
    const std::vector<std::size_t> nothing(4, 0);
    const SimulatedDevice device{&half, &nothing, 4 * kBlock};
    EXPECT_NEAR(simulate_passes(std::vector{device, device}, std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}).seconds,
                8.0, 1e-6);
}

}  // namespace
}  // namespace slipstream
