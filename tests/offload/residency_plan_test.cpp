// plan_residency(): what it chooses on small schedules, and what holds for all: budgets to the byte, whole units, more
// memory or a faster link never slower.
#include "offload/residency_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"

namespace slipstream {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

PlanItem weights(std::size_t bytes) {
    return {.tag = PlanTag::Weights,
            .bytes = bytes,
            .unit_bytes = bytes,
            .transfer_bytes = bytes,
            .compute_seconds = static_cast<double>(bytes) / (100.0 * kMiB)};
}

PlanItem kv(std::size_t n_chunks, std::size_t chunk_bytes) {
    return {.tag = PlanTag::Kv,
            .bytes = n_chunks * chunk_bytes,
            .unit_bytes = chunk_bytes,
            .transfer_bytes = 16 * chunk_bytes,
            .compute_seconds = static_cast<double>(n_chunks * chunk_bytes) / (100.0 * kMiB)};
}

// Read by `share` of all passes.
PlanItem on_demand(std::size_t bytes, double share) {
    PlanItem item = weights(bytes);
    item.tag = PlanTag::OnDemand;
    item.read_share = item.slot_saves = share;
    item.compute_seconds *= share;
    return item;
}

// Layers of weights, 2 MiB, 32 chunks of KV, and 8 items of 1 MiB of which a pass reads 2.
ResidencyRequest mixture(int n, std::size_t chunk_bytes) {
    ResidencyRequest request{.link_bytes_per_second = 10.0 * kMiB};
    for (int layer = 0; layer < n; ++layer) {
        request.schedule.push_back(weights(2 * kMiB));
        request.schedule.push_back(kv(32, chunk_bytes));
        for (int i = 0; i < 8; ++i) request.schedule.push_back(on_demand(kMiB, 0.25));
    }
    return request;
}

// Layers of weights, 2 and 6 MiB, around 32 chunks of KV.
ResidencyRequest layers(int n, std::size_t chunk_bytes) {
    ResidencyRequest request{.link_bytes_per_second = 10.0 * kMiB};
    for (int layer = 0; layer < n; ++layer) {
        request.schedule.push_back(weights(2 * kMiB));
        request.schedule.push_back(kv(32, chunk_bytes));
        request.schedule.push_back(weights(6 * kMiB));
    }
    return request;
}

std::size_t total_bytes(const ResidencyRequest& request) {
    std::size_t bytes = 0;
    for (const PlanItem& item : request.schedule) bytes += item.bytes;
    return bytes;
}

TEST(ResidencyPlan, WithoutALimitEverythingIsResident) {
    ResidencyRequest request = layers(4, kMiB / 16);
    request.fixed_bytes = 1000;
    request.budget_bytes = kNoLimit;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::AllFits);
    EXPECT_EQ(plan.ring_bytes, 0U);
    EXPECT_EQ(plan.device_bytes, total_bytes(request) + 1000);
    EXPECT_EQ(plan.streamed_weights_bytes + plan.streamed_kv_bytes, 0U);
    EXPECT_EQ(plan.resident_weights_bytes, 32 * kMiB);
    EXPECT_EQ(plan.resident_kv_bytes, 8 * kMiB);
    EXPECT_NEAR(plan.pass_seconds, 0.4, 1e-9);
    // The same at the byte where it just fits.
    request.budget_bytes = plan.device_bytes;
    EXPECT_EQ(plan_residency(request).regime, Regime::AllFits);
    request.budget_bytes -= 1;
    EXPECT_NE(plan_residency(request).regime, Regime::AllFits);
}

TEST(ResidencyPlan, LongContextsStreamTheSameShareOfEachLayersKv) {
    ResidencyRequest request = layers(4, kMiB);    // 32 MiB of weights, 128 of KV
    request.budget_bytes = (32 + 64 + 30) * kMiB;  // the ring wants four extents
    request.kv_streaming_bytes = kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::KvStreams);
    EXPECT_EQ(plan.streamed_weights_bytes, 0U);
    for (std::size_t layer = 0; layer < 4; ++layer) {
        EXPECT_EQ(plan.resident_bytes[3 * layer], 2 * kMiB);
        EXPECT_EQ(plan.resident_bytes[3 * layer + 2], 6 * kMiB);
        // Of all chunks that fit, each layer's share, one more or less.
        EXPECT_NEAR(static_cast<double>(plan.resident_bytes[3 * layer + 1]),
                    static_cast<double>(plan.resident_kv_bytes) / 4.0, 1.0 * kMiB);
    }
    EXPECT_NEAR(plan.pass_seconds * plan.link_busy_fraction,
                static_cast<double>(plan.streamed_kv_bytes) / (10.0 * kMiB), 1e-6);
    EXPECT_GT(plan.link_busy_fraction, 0.95);
}

TEST(ResidencyPlan, LargeModelsKeepTheirKvAndSpreadTheirWeights) {
    ResidencyRequest request;
    request.link_bytes_per_second = 10.0 * kMiB;
    for (int layer = 0; layer < 8; ++layer) {
        request.schedule.push_back(weights(4 * kMiB));
        request.schedule.push_back(kv(4, kMiB / 8));
        request.schedule.push_back(weights(4 * kMiB));
    }
    request.ring_bytes = 16 * kMiB;
    request.budget_bytes = (16 + 4 + 32) * kMiB;
    request.kv_streaming_bytes = 2 * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::WeightsStream);
    EXPECT_EQ(plan.resident_kv_bytes, 4 * kMiB);
    EXPECT_EQ(plan.resident_weights_bytes, 32 * kMiB);
    // Every other item: in each run of four there are two.
    std::vector<int> items;
    for (std::size_t i = 0; i < request.schedule.size(); ++i)
        if (request.schedule[i].tag == PlanTag::Weights) items.push_back(plan.resident_bytes[i] > 0 ? 1 : 0);
    for (std::size_t i = 0; i + 4 <= items.size(); ++i)
        EXPECT_EQ(items[i] + items[i + 1] + items[i + 2] + items[i + 3], 2) << "from item " << i;
    EXPECT_NEAR(plan.pass_seconds, 3.2, 0.01);
}

TEST(ResidencyPlan, KvThatMayNeverComeIsWhatStreams) {
    // Either would do with the context full; while the text is short, weights would stream for nothing.
    ResidencyRequest request = layers(8, kMiB / 4);  // 64 MiB of weights, 64 of KV
    request.budget_bytes = 118 * kMiB;
    request.kv_streaming_bytes = kMiB;
    request.least_ring_bytes = 12 * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::KvStreams);
    EXPECT_EQ(plan.resident_weights_bytes, 64 * kMiB);
    EXPECT_GT(plan.resident_kv_bytes, 32 * kMiB);
}

TEST(ResidencyPlan, WhereNeitherFitsWeightsComeFirst) {
    ResidencyRequest request = layers(4, kMiB);
    request.budget_bytes = 50 * kMiB;
    request.least_ring_bytes = 32 * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::BothStream);
    EXPECT_GE(plan.resident_weights_bytes, 16 * kMiB);
    EXPECT_LE(plan.device_bytes, request.budget_bytes);
    EXPECT_GT(plan.device_bytes + 2 * kMiB, request.budget_bytes);
}

TEST(ResidencyPlan, EverySpareByteIsUsed) {
    ResidencyRequest request = layers(16, kMiB / 16);
    request.least_ring_bytes = 12 * kMiB;
    for (std::size_t budget = 20 * kMiB; budget < 150 * kMiB; budget += 7 * kMiB / 2) {
        request.budget_bytes = budget;
        const ResidencyPlan plan = plan_residency(request);
        EXPECT_LE(plan.device_bytes, budget);
        // Nothing that streams would fit into what is left.
        for (std::size_t i = 0; i < request.schedule.size(); ++i) {
            const std::size_t streamed = request.schedule[i].bytes - plan.resident_bytes[i];
            if (streamed == 0) continue;
            EXPECT_GT(std::min(streamed, request.schedule[i].unit_bytes), budget - plan.device_bytes);
        }
    }
}

TEST(ResidencyPlan, TheRingHoldsFourItemsAndWhatTheLinkBringsWhileNothingIsComputed) {
    ResidencyRequest request = layers(128, kMiB / 16);  // 1 GiB of weights, 256 MiB of KV
    request.budget_bytes = 700 * kMiB;
    EXPECT_EQ(plan_residency(request).ring_bytes, 24 * kMiB);
    request.fixed_seconds = 4.0;
    EXPECT_EQ(plan_residency(request).ring_bytes, 40 * kMiB);
    request.least_ring_bytes = 45 * kMiB;
    EXPECT_EQ(plan_residency(request).ring_bytes, 45 * kMiB);
    request.ring_bytes = 46 * kMiB;
    EXPECT_EQ(plan_residency(request).ring_bytes, 46 * kMiB);
}

TEST(ResidencyPlan, ATightBudgetGetsASmallerRing) {
    ResidencyRequest request = layers(4, kMiB / 16);
    request.least_ring_bytes = 8 * kMiB;
    request.budget_bytes = 30 * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_GE(plan.ring_bytes, request.least_ring_bytes);
    EXPECT_LT(plan.ring_bytes, 24 * kMiB);
}

TEST(ResidencyPlan, WhereLittleIsMissingLittleStreams) {
    ResidencyRequest request = layers(64, kMiB / 16);
    request.budget_bytes = total_bytes(request) - kMiB;
    // Two items' ring, and as much as that and the missing MiB together streams.
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_LE(plan.streamed_weights_bytes + plan.streamed_kv_bytes, 14 * kMiB);
}

TEST(ResidencyPlan, TooSmallABudgetIsRefusedWithTheLeastThatWouldDo) {
    ResidencyRequest request = layers(4, kMiB / 16);
    request.fixed_bytes = 3 * kMiB;
    request.streaming_bytes = kMiB;
    request.kv_streaming_bytes = 2 * kMiB;
    request.least_ring_bytes = 12 * kMiB;
    const std::size_t least = least_budget_bytes(request);
    EXPECT_EQ(least, 18 * kMiB);
    request.budget_bytes = least;
    EXPECT_EQ(plan_residency(request).device_bytes, least);
    request.budget_bytes = least - 1;
    EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(plan_residency(request)); }),
                AllOf(HasSubstr("3.0 MiB are needed in any case, 3.0 MiB for streaming and 12.0 MiB for the ring"),
                      HasSubstr("--device-memory 18M or more"), HasSubstr("--ctx")));
    request.budget_bytes = 1000 * kMiB;
    EXPECT_EQ(plan_residency(request).regime, Regime::AllFits);
}

TEST(ResidencyPlan, KeepingAShortKvCanBeTheLeast) {
    ResidencyRequest request = layers(4, kMiB / 1024);  // 128 KiB of KV in all
    request.kv_streaming_bytes = 2 * kMiB;
    request.least_ring_bytes = 12 * kMiB;
    EXPECT_EQ(least_budget_bytes(request), 12 * kMiB + kMiB / 8);
    request.budget_bytes = least_budget_bytes(request);
    EXPECT_EQ(plan_residency(request).regime, Regime::WeightsStream);
}

TEST(ResidencyPlan, AGivenRingThatIsTooSmallIsRefused) {
    ResidencyRequest request = layers(4, kMiB / 16);
    request.budget_bytes = 30 * kMiB;
    request.least_ring_bytes = 12 * kMiB;
    request.ring_bytes = 5 * kMiB;
    EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(plan_residency(request)); }),
                AllOf(HasSubstr("a ring of 5.0 MiB is too small"), HasSubstr("--ring 12M")));
}

TEST(ResidencyPlan, TheBeginningOfAWindowIsNoPlaceForMemory) {
    ResidencyRequest request = layers(4, kMiB);
    for (PlanItem& item : request.schedule)
        if (item.tag == PlanTag::Kv) item.read_bytes = 4 * kMiB;
    request.ring_bytes = 32 * kMiB;
    request.budget_bytes = (32 + 32 + 20) * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::KvStreams);
    EXPECT_EQ(plan.resident_kv_bytes, 0U);
    EXPECT_EQ(plan.streamed_kv_bytes, 16 * kMiB);
}

// 16 MiB of weights, 8 of KV, 64 on demand.
TEST(ResidencyPlan, ItemsOnDemandStreamBeforeWeightsAndKv) {
    ResidencyRequest request = mixture(8, kMiB / 32);
    request.ring_bytes = 4 * kMiB;
    for (const std::size_t free : {0, 1, 20, 55}) {  // MiB for items on demand
        request.budget_bytes = (4 + 16 + 8 + free) * kMiB;
        const ResidencyPlan plan = plan_residency(request);
        EXPECT_EQ(plan.regime, Regime::WeightsStream);
        EXPECT_EQ(plan.resident_kv_bytes, 8 * kMiB);
        EXPECT_EQ(plan.resident_weights_bytes, (16 + free) * kMiB);
        EXPECT_EQ(plan.device_bytes, request.budget_bytes);
        std::size_t scheduled = 0;
        for (std::size_t i = 0; i < request.schedule.size(); ++i)
            if (request.schedule[i].tag == PlanTag::Weights) scheduled += plan.resident_bytes[i];
        EXPECT_EQ(scheduled, 16 * kMiB);
        EXPECT_EQ(plan.most_streamed_weights_bytes, (64 - free) * kMiB);
        EXPECT_EQ(plan.streamed_weights_bytes, (64 - free) * kMiB / 4);
        // What is expected goes over the link, and nothing of it while other things are computed.
        EXPECT_NEAR(plan.pass_seconds * plan.link_busy_fraction,
                    static_cast<double>(plan.streamed_weights_bytes) / (10.0 * kMiB), 1e-6);
        EXPECT_GT(plan.pass_seconds, (2.0 * 8 / 100 + static_cast<double>(64 - free) / 4 / 10) * (1.0 - 1e-9));
    }
}

// The room of items on demand is slots: as many in each layer, and then some layers have one more.
TEST(ResidencyPlan, ItemsOnDemandGetSlots) {
    ResidencyRequest request = mixture(8, kMiB / 32);
    request.ring_bytes = 4 * kMiB;
    for (const std::int32_t free : {0, 1, 20, 55}) {  // MiB for items on demand
        request.budget_bytes = static_cast<std::size_t>(4 + 16 + 8 + free) * kMiB;
        request.has_slots = false;
        const ResidencyPlan fixed = plan_residency(request);
        request.has_slots = true;
        const ResidencyPlan plan = plan_residency(request);
        std::vector<std::int32_t> slots(free == 0 ? 0 : 8);
        for (std::int32_t layer = 0; layer < std::ssize(slots); ++layer)
            slots[layer] = free / 8 + (layer < free % 8 ? 1 : 0);
        EXPECT_EQ(plan.slots, slots);
        EXPECT_EQ(plan.slot_bytes, static_cast<std::size_t>(free) * kMiB);
        EXPECT_EQ(plan.resident_weights_bytes, 16 * kMiB);
        EXPECT_EQ(plan.device_bytes, request.budget_bytes);
        EXPECT_EQ(plan.regime, Regime::WeightsStream);
        // As many are expected to be copied, but any may be.
        EXPECT_EQ(plan.streamed_weights_bytes, fixed.streamed_weights_bytes);
        EXPECT_EQ(plan.most_streamed_weights_bytes, 64 * kMiB);
        EXPECT_NEAR(plan.pass_seconds, fixed.pass_seconds, 0.25 * fixed.pass_seconds);
    }
    request.budget_bytes = (16 + 8 + 64) * kMiB;
    const ResidencyPlan all = plan_residency(request);
    EXPECT_EQ(all.regime, Regime::AllFits);
    EXPECT_EQ(all.slot_bytes, 0U);
}

// The first slots of a layer save most, as where some items are read more often than others.
TEST(ResidencyPlan, SlotsSaveWhatIsExpectedOfThem) {
    ResidencyRequest request = mixture(8, kMiB / 32);
    request.ring_bytes = 4 * kMiB;
    for (std::size_t i = 0; i < request.schedule.size(); ++i)
        if (request.schedule[i].tag == PlanTag::OnDemand) request.schedule[i].slot_saves = i % 10 < 6 ? 0.45 : 0.05;
    for (const std::int32_t free : {0, 1, 20, 40, 55}) {  // MiB for items on demand
        request.budget_bytes = static_cast<std::size_t>(4 + 16 + 8 + free) * kMiB;
        request.has_slots = false;
        const ResidencyPlan fixed = plan_residency(request);
        request.has_slots = true;
        const ResidencyPlan plan = plan_residency(request);
        double saved = 0.0;
        for (std::int32_t layer = 0; layer < std::ssize(plan.slots); ++layer)
            for (std::int32_t slot = 0; slot < plan.slots[layer]; ++slot)
                saved += request.schedule[10 * layer + 2 + slot].slot_saves;
        EXPECT_NEAR(static_cast<double>(plan.streamed_weights_bytes), (16.0 - saved) * kMiB, 1.0);
        EXPECT_EQ(fixed.streamed_weights_bytes, (64 - static_cast<std::size_t>(free)) * kMiB / 4);
        EXPECT_LE(plan.streamed_weights_bytes, fixed.streamed_weights_bytes);
        EXPECT_LE(plan.pass_seconds, fixed.pass_seconds * (1.0 + 1e-9));
    }
}

// Items of several sizes: a slot holds the largest of its run, and a layer has no more slots than items.
TEST(ResidencyPlan, SlotsHoldTheLargestItem) {
    ResidencyRequest request{
        .budget_bytes = 768 + 128 + 384 + 64, .ring_bytes = 768, .link_bytes_per_second = 1e6, .has_slots = true};
    request.schedule = {weights(64)};
    for (int i = 0; i < 10; ++i) request.schedule.push_back(on_demand(i == 4 ? 330 : 100, 0.5));
    request.schedule.push_back(weights(64));
    request.schedule.push_back(on_demand(64, 0.5));
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.slots, (std::vector<std::int32_t>{1, 1}));
    EXPECT_EQ(plan.slot_bytes, 384U + 64U);
    EXPECT_EQ(plan.device_bytes, request.budget_bytes);
}

// Where KV and items on demand do not fit, weights stay whole and KV gets the room that is left.
TEST(ResidencyPlan, KvComesBeforeItemsOnDemand) {
    ResidencyRequest request = mixture(4, kMiB / 4);  // 8 MiB of weights, 32 of KV, 32 on demand
    request.ring_bytes = 8 * kMiB;
    request.budget_bytes = (8 + 8 + 20) * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::BothStream);
    EXPECT_EQ(plan.resident_kv_bytes, 20 * kMiB);
    EXPECT_EQ(plan.resident_weights_bytes, 8 * kMiB);
}

// Two of the largest of each kind.
TEST(ResidencyPlan, TheRingHoldsTwoItemsOfEachKind) {
    ResidencyRequest request = mixture(4, kMiB / 4);
    EXPECT_EQ(least_budget_bytes(request), (2 * 2 + 2 * 1) * kMiB);
    request.budget_bytes = least_budget_bytes(request);
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.ring_bytes, 6 * kMiB);
    EXPECT_EQ(plan.resident_weights_bytes + plan.resident_kv_bytes, 0U);
    request.budget_bytes -= 1;
    EXPECT_THROW(static_cast<void>(plan_residency(request)), OutOfBudget);
}

// Where KV and items on demand alone stream, as where weights stream too, the ring has room for both.
TEST(ResidencyPlan, KvBesideItemsOnDemandNeedsItsPartOfTheRing) {
    ResidencyRequest request = mixture(4, kMiB / 4);  // 8 MiB of weights, 32 of KV, 32 on demand
    request.least_ring_bytes = 10 * kMiB;
    request.least_kv_ring_bytes = 20 * kMiB;
    request.budget_bytes = (8 + 30 + 3) * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.resident_weights_bytes, 8 * kMiB);
    EXPECT_EQ(plan.resident_kv_bytes, 3 * kMiB);
    EXPECT_EQ(plan.ring_bytes, 30 * kMiB);
}

TEST(ResidencyPlan, WhereWeightsStayItemsOnDemandStayToo) {
    ResidencyRequest request = mixture(4, kMiB / 4);
    request.weights_stay = true;
    request.ring_bytes = 4 * kMiB;
    request.budget_bytes = (8 + 32 + 4 + 10) * kMiB;
    const ResidencyPlan plan = plan_residency(request);
    EXPECT_EQ(plan.regime, Regime::KvStreams);
    EXPECT_EQ(plan.resident_weights_bytes, 40 * kMiB);
    request.budget_bytes = (8 + 32 + 3) * kMiB;
    EXPECT_THAT(error_text<OutOfBudget>([&] { static_cast<void>(plan_residency(request)); }),
                HasSubstr("including all weights"));
}

TEST(ResidencyPlan, RegimesHaveTheirNames) {
    EXPECT_EQ(regime_name(Regime::AllFits), "all fits");
    EXPECT_EQ(regime_name(Regime::KvStreams), "KV streams");
    EXPECT_EQ(regime_name(Regime::WeightsStream), "weights stream");
    EXPECT_EQ(regime_name(Regime::BothStream), "weights and KV stream");
}

class RandomRequest : public testing::Test {
protected:
    int drawn(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
    std::size_t bytes(int low, int high) { return static_cast<std::size_t>(drawn(low, high)); }

    ResidencyRequest request() {
        ResidencyRequest request;
        const int n_layers = drawn(1, 20);
        const std::size_t chunk = bytes(1, 4000);
        const std::size_t n_chunks = bytes(0, 100);
        const bool has_experts = drawn(0, 1) == 0;
        for (int layer = 0; layer < n_layers; ++layer) {
            for (int i = drawn(1, 2); i > 0; --i) request.schedule.push_back(random_weights());
            PlanItem item = kv(n_chunks, chunk);
            item.compute_seconds = drawn(0, 100) * 1e-5;
            if (drawn(0, 9) == 0) item.read_bytes = chunk * bytes(1, 10);
            request.schedule.push_back(item);
            for (int i = drawn(0, 3); i > 0; --i) request.schedule.push_back(random_weights());
            if (!has_experts) continue;
            for (int i = drawn(0, 9); i > 0; --i) {
                request.schedule.push_back(random_weights());
                request.schedule.back().tag = PlanTag::OnDemand;
                request.schedule.back().read_share = drawn(1, 100) / 100.0;
                request.schedule.back().slot_saves = drawn(0, 100) / 100.0;
            }
        }
        request.fixed_bytes = bytes(0, 50'000);
        request.streaming_bytes = bytes(0, 5'000);
        request.kv_streaming_bytes = bytes(0, 50'000);
        request.least_ring_bytes = bytes(0, 100'000);
        request.link_bytes_per_second = drawn(1, 100) * 1e6;
        if (drawn(0, 1) == 0) request.memory_bytes_per_second = drawn(1, 200) * 1e6;
        if (drawn(0, 1) == 0) request.fixed_seconds = drawn(0, 100) * 1e-4;
        return request;
    }

    PlanItem random_weights() {
        PlanItem item = weights(bytes(1, 40'000));
        item.compute_seconds = drawn(0, 100) * 1e-5;
        if (drawn(0, 1) == 0) item.host_bytes = static_cast<double>(item.bytes);
        return item;
    }

    std::mt19937 random_{7};
};

TEST_F(RandomRequest, BudgetsAreHonouredToTheByte) {
    for (int round = 0; round < 400; ++round) {
        SCOPED_TRACE(round);
        ResidencyRequest asked = request();
        const std::size_t least = least_budget_bytes(asked);
        const std::size_t all = asked.fixed_bytes + total_bytes(asked);
        ASSERT_LE(least, all);
        asked.budget_bytes = least + static_cast<std::size_t>(static_cast<double>(all - least) * drawn(0, 100) / 100.0);
        asked.has_slots = round % 2 == 0;
        const ResidencyPlan plan = plan_residency(asked);
        const bool has_slots = plan.slot_bytes > 0;
        EXPECT_EQ(has_slots, !plan.slots.empty());
        EXPECT_TRUE(asked.has_slots || !has_slots);
        EXPECT_LE(plan.device_bytes, asked.budget_bytes);
        std::size_t taken = asked.fixed_bytes + plan.ring_bytes + plan.slot_bytes;
        std::size_t streamed = 0;
        std::size_t in_slots = 0;
        double expected = 0.0;
        bool kv_streams = false;
        for (std::size_t i = 0; i < asked.schedule.size(); ++i) {
            const PlanItem& item = asked.schedule[i];
            ASSERT_LE(plan.resident_bytes[i], item.bytes);
            EXPECT_TRUE(plan.resident_bytes[i] == item.bytes || plan.resident_bytes[i] % item.unit_bytes == 0);
            const bool is_in_slot = has_slots && item.tag == PlanTag::OnDemand;
            (is_in_slot ? in_slots : taken) += plan.resident_bytes[i];
            const std::size_t read = item.read_bytes == 0 ? item.bytes : std::min(item.read_bytes, item.bytes);
            streamed += std::min(read, item.bytes - plan.resident_bytes[i]);
            const double copies = asked.has_slots && item.tag == PlanTag::OnDemand ? item.slot_saves : item.read_share;
            expected += copies * static_cast<double>(std::min(read, item.bytes - plan.resident_bytes[i]));
            kv_streams = kv_streams || (item.tag == PlanTag::Kv && plan.resident_bytes[i] < item.bytes);
        }
        if (streamed > 0) taken += asked.streaming_bytes + (kv_streams ? asked.kv_streaming_bytes : 0);
        EXPECT_EQ(plan.device_bytes, taken);
        EXPECT_LE(in_slots, plan.slot_bytes);
        EXPECT_EQ(plan.most_streamed_weights_bytes + plan.streamed_kv_bytes, streamed + in_slots);
        EXPECT_NEAR(static_cast<double>(plan.streamed_weights_bytes + plan.streamed_kv_bytes), expected, 1.0);
        EXPECT_EQ(streamed > 0, plan.ring_bytes > 0);
        if (least > 0) {
            asked.budget_bytes = least - 1;
            EXPECT_THROW(static_cast<void>(plan_residency(asked)), OutOfBudget);
        }
    }
}

TEST_F(RandomRequest, MoreMemoryIsNeverSlower) {
    for (int round = 0; round < 60; ++round) {
        ResidencyRequest asked = request();
        asked.has_slots = round % 2 == 0;
        const std::size_t least = least_budget_bytes(asked);
        const std::size_t all = asked.fixed_bytes + total_bytes(asked);
        double largest_copy = 0.0;
        for (const PlanItem& item : asked.schedule)
            largest_copy = std::max(largest_copy, static_cast<double>(std::min(item.bytes, item.transfer_bytes)));
        double before = std::numeric_limits<double>::infinity();
        for (int step = 0; step <= 10; ++step) {
            asked.budget_bytes = least + (all - least) / 10 * static_cast<std::size_t>(step);
            const double now = plan_residency(asked).pass_seconds;
            // Items are all or nothing: a few of them may fall otherwise, for better or worse.
            const double rounding =
                0.05 * before +
                (2.0 * largest_copy + static_cast<double>(asked.kv_streaming_bytes)) / asked.link_bytes_per_second;
            if (step > 0) {
                EXPECT_LE(now, before + rounding) << "round " << round << ", step " << step;
            }
            before = std::min(before, now);
        }
    }
}

TEST_F(RandomRequest, AFasterLinkIsNeverSlower) {
    for (int round = 0; round < 100; ++round) {
        ResidencyRequest asked = request();
        asked.has_slots = round % 2 == 0;
        const std::size_t least = least_budget_bytes(asked);
        asked.budget_bytes = least + (asked.fixed_bytes + total_bytes(asked) - least) / 2;
        const double before = plan_residency(asked).pass_seconds;
        asked.link_bytes_per_second *= 1.0 + drawn(1, 300) / 100.0;
        EXPECT_LE(plan_residency(asked).pass_seconds, before * 1.02) << "round " << round;
    }
}

TEST(ResidencyPlan, ThousandsOfBlocksTakeMilliseconds) {
    // As many as a 70B model in 4 bits has behind 128K tokens: 9 items and 32 extents a layer.
    ResidencyRequest request;
    request.link_bytes_per_second = 25e9;
    request.least_ring_bytes = 600 * kMiB;
    for (int layer = 0; layer < 80; ++layer) {
        for (int i = 0; i < 9; ++i) {
            if (i == 1) request.schedule.push_back(kv(512, kMiB));
            request.schedule.push_back(weights(55 * kMiB));
            request.schedule.back().compute_seconds = 60e-6;
        }
        request.schedule[request.schedule.size() - 9].compute_seconds = 1e-3;
    }
    request.budget_bytes = 22528 * kMiB;
    double best = 1.0;  // of a few runs: others use the machine, too
    for (int run = 0; run < 5; ++run) {
        const auto began = std::chrono::steady_clock::now();
        EXPECT_EQ(plan_residency(request).regime, Regime::BothStream);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    EXPECT_LT(best, kSanitized ? 0.5 : 0.05);
    RecordProperty("milliseconds", std::to_string(best * 1e3));
}

}  // namespace
}  // namespace slipstream
