// Layers shared out over devices, planned by shapes: who gets how many, and what a pass then takes.
#include "runtime/plan/split_plan.h"

#include <array>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/plan/expert_plan.h"
#include "runtime/ranks/model_split.h"
#include "tests/support/layers.h"
#include "tests/support/sanitizers.h"
#include "tests/support/shape_of_weights.h"

namespace slipstream {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr double kLink = 1e9;

/// What a device has: memory, and a link; and how fast it computes, if not as the shape says.
struct Room {
    std::size_t bytes = 0;
    double link = kLink;
    double memory_rate = 0.0;
};

// 24 layers of 30 MiB in F16, a small head.
struct Shape {
    ModelConfig config;
    ModelWeights weights;
    double memory_rate = 10e9;    // of computing
    std::size_t layer_bytes = 0;  // that a layer takes whatever streams: its part of the KV tail

    Shape() {
        config.d_model = 1024;
        set_layers(config, {.n_layers = 24, .d_ff = 4096, .n_q_heads = 16, .n_kv_heads = 4, .head_dim = 64});
        config.vocab = 4096;
        weights = shape_of_weights(config);
    }

    [[nodiscard]] SplitPlanRequest request(const std::vector<Room>& rooms) const {
        const auto of_rank = [this, rooms](std::size_t rank, const ModelConfig& thin, const ModelWeights& views) {
            const double rate = rooms[rank].memory_rate > 0.0 ? rooms[rank].memory_rate : memory_rate;
            PassRates rates;
            rates.weights[static_cast<std::size_t>(DType::F16)] = ByteCost::roofline(rate, 1e15, 1.0);
            rates.kv = ByteCost::roofline(rate, 1e15, 1.0);
            return ModelPlanRequest{.config = &thin,
                                    .weights = &views,
                                    .context_tokens = 256,
                                    .budget_bytes = rooms[rank].bytes,
                                    .fixed_bytes = kMiB + static_cast<std::size_t>(thin.n_layers()) * layer_bytes,
                                    .speed = {.rates = rates, .link_bytes_per_second = rooms[rank].link}};
        };
        return {.config = &config, .weights = &weights, .rank_request = of_rank, .pass_tokens = 1};
    }
    [[nodiscard]] SplitPlan plan(const std::vector<Room>& rooms, const std::vector<std::int64_t>& parts,
                                 SplitKind kind = SplitKind::Layers) const {
        SplitPlanRequest asked = request(rooms);
        asked.kind = kind;
        if (rooms.size() > 1) asked.shards = deal_parts(kind, config, weights, parts);
        return SplitPlan(asked);
    }
    [[nodiscard]] std::vector<std::int64_t> choose_heads(const std::vector<Room>& rooms) const {
        SplitPlanRequest asked = request(rooms);
        asked.kind = SplitKind::Tensor;
        return choose_parts(asked, rooms.size());
    }
};

constexpr std::size_t kRoomy = std::size_t{1} << 40;

// Whether experts are on the CPU is what all devices do together: a rank that computes what it lacks may lack nothing.
TEST(SplitPlan, ARankThatWouldCopyNothingDoesNotHideThatAnotherCopies) {
    Shape shape;
    for (LayerConfig& layer : shape.config.layers)
        layer.feed_forward = {.experts = {.n_experts = 16, .n_chosen = 2, .d_ff = 1024}};
    shape.weights = shape_of_weights(shape.config);
    SplitPlanRequest asked = shape.request({Room{600 * kMiB}, Room{kRoomy}});
    asked.shards = deal_parts(SplitKind::Layers, shape.config, shape.weights, std::vector<std::int64_t>{12, 12});
    std::array<ExpertMisses, 2> misses{ExpertMisses::Copy, ExpertMisses::Cpu};
    asked.rank_request = [&misses, of_rank = asked.rank_request](std::size_t rank, const ModelConfig& thin,
                                                                 const ModelWeights& views) {
        ModelPlanRequest request = of_rank(rank, thin, views);
        request.fixed_experts = true;
        request.misses = misses[rank];
        return request;
    };
    const ExpertPlan copied = expert_plan(SplitPlan(asked));
    EXPECT_EQ(copied.regime, ExpertRegime::Fixed);
    EXPECT_GT(copied.copied_bytes, 0.0);
    EXPECT_EQ(copied.cpu_bytes, 0.0);
    misses.fill(ExpertMisses::Cpu);
    const ExpertPlan computed = expert_plan(SplitPlan(asked));
    EXPECT_EQ(computed.regime, ExpertRegime::OnCpu);
    EXPECT_EQ(computed.copied_bytes, 0.0);
    EXPECT_GT(computed.cpu_bytes, 0.0);
}

TEST(SplitPlan, TwoLinksHalveAPass) {
    const Shape shape;
    const SplitPlan one = shape.plan({{400 * kMiB}}, {});
    const SplitPlan two = shape.plan({{200 * kMiB}, {200 * kMiB}}, {12, 12});
    ASSERT_TRUE(one.streams());
    EXPECT_EQ(two.sums().regime, Regime::WeightsStream);
    // Rings take more of the same memory: each holds two layers.
    EXPECT_LE(two.pass(1).seconds, 0.65 * one.pass(1).seconds);
    EXPECT_GE(two.sums().link_busy_fraction, 0.9);
}

// All resident: the devices take turns, so nothing is gained.
TEST(SplitPlan, WhatIsResidentIsComputedInTurns) {
    const Shape shape;
    const SplitPlan one = shape.plan({{kRoomy}}, {});
    const SplitPlan two = shape.plan({{kRoomy}, {kRoomy}}, {6, 18});
    EXPECT_FALSE(two.streams());
    EXPECT_NEAR(two.pass(1).seconds, one.pass(1).seconds, 1e-3 * one.pass(1).seconds);
}

// Matrices among them: all links and all devices at the same time.
TEST(SplitPlan, MatricesAreComputedAtTheSameTime) {
    const Shape shape;
    const SplitPlan one = shape.plan({{kRoomy}}, {});
    const SplitPlan two = shape.plan({{kRoomy}, {kRoomy}}, {2, 2}, SplitKind::Tensor);
    EXPECT_FALSE(two.streams());
    EXPECT_NEAR(two.pass(1).seconds, one.pass(1).seconds / 2, 0.02 * one.pass(1).seconds);
    const SplitPlan streamed = shape.plan({{400 * kMiB}}, {});
    const SplitPlan halves = shape.plan({{200 * kMiB}, {200 * kMiB}}, {2, 2}, SplitKind::Tensor);
    EXPECT_NEAR(halves.pass(1).seconds, streamed.pass(1).seconds / 2, 0.1 * streamed.pass(1).seconds);
    EXPECT_GE(halves.sums().link_busy_fraction, 0.9);
    // The slowest decides.
    const SplitPlan uneven = shape.plan({{kRoomy}, {kRoomy}}, {3, 1}, SplitKind::Tensor);
    EXPECT_NEAR(uneven.pass(1).seconds, one.pass(1).seconds * 0.75, 0.02 * one.pass(1).seconds);
}

TEST(ChooseHeads, MoreMemoryOrAFasterLinkGetsMore) {
    const Shape shape;
    EXPECT_THAT(shape.choose_heads({{200 * kMiB}, {200 * kMiB}}), testing::ElementsAre(2, 2));
    EXPECT_THAT(shape.choose_heads({{150 * kMiB, 3 * kLink}, {150 * kMiB, kLink}}), testing::ElementsAre(3, 1));
    EXPECT_THAT(shape.choose_heads({{100 * kMiB}, {500 * kMiB}}), testing::ElementsAre(1, 3));
    EXPECT_THROW(static_cast<void>(shape.choose_heads(std::vector<Room>(5, {kRoomy}))), Unsupported);
}

TEST(ChooseLayers, EqualDevicesGetEqualShares) {
    const Shape shape;
    EXPECT_THAT(choose_parts(shape.request({{200 * kMiB}, {200 * kMiB}}), 2), testing::ElementsAre(12, 12));
}

TEST(ChooseLayers, AFasterLinkGetsMore) {
    const Shape shape;
    const std::vector<Room> rooms{{150 * kMiB, 2 * kLink}, {150 * kMiB, kLink}};
    const std::vector<std::int64_t> layers = choose_parts(shape.request(rooms), 2);
    // By bytes that stream: (S - 150) : (S' - 150) = 2 : 1.
    EXPECT_GE(layers[0], 13);
    EXPECT_LE(layers[0], 17);
    for (const std::int64_t other : {8, 12, 20})
        EXPECT_LE(shape.plan(rooms, layers).pass(1).seconds,
                  shape.plan(rooms, {other, 24 - other}).pass(1).seconds * 1.001);
}

TEST(ChooseLayers, MoreMemoryGetsMore) {
    const Shape shape;
    const std::vector<std::int64_t> layers = choose_parts(shape.request({{120 * kMiB}, {360 * kMiB}, {120 * kMiB}}), 3);
    EXPECT_GT(layers[1], layers[0] + 2);
    EXPECT_GT(layers[1], layers[2] + 2);
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 24);
}

// A device that computes in place takes what it computes while the other streams the rest.
TEST(ChooseLayers, ADeviceInPlaceComputesWhileTheOtherStreams) {
    Shape shape;
    shape.memory_rate = 4 * kLink;
    const std::vector<Room> rooms{{150 * kMiB, kLink}, {kRoomy, kLink}};
    const std::vector<std::int64_t> layers = choose_parts(shape.request(rooms), 2);
    EXPECT_GT(layers[0], 1);
    EXPECT_GT(layers[1], layers[0]);
    const double best = shape.plan(rooms, layers).pass(1).seconds;
    for (std::int64_t other = 1; other < 24; other += 2)
        EXPECT_LE(best, shape.plan(rooms, {other, 24 - other}).pass(1).seconds * 1.01) << other;
}

// A split that is lighter must not undo one that is shorter: the search would go round in circles.
TEST(ChooseLayers, TheSearchEnds) {
    const Shape shape;
    const std::size_t step = kSanitized ? 36 : 4;
    for (const double slow : {1.5, 2.0, 3.0, 4.0}) {
        for (std::size_t room = 100; room <= 400; room += step) {
            const std::vector<Room> rooms{{room * kMiB}, {room * kMiB}, {kRoomy, kLink, slow * kLink}};
            const std::vector<std::int64_t> layers = choose_parts(shape.request(rooms), rooms.size());
            EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 24);
        }
    }
}

// Half of the layers do not fit on the small device, one or two do.
TEST(ChooseLayers, AnEvenSplitNeedNotFit) {
    Shape shape;
    shape.layer_bytes = 4 * kMiB;
    const auto fits = [&](std::size_t bytes, std::int64_t first) {
        try {
            static_cast<void>(shape.plan({{bytes}, {kRoomy}}, {first, 24 - first}));
            return true;
        } catch (const OutOfBudget&) {
            return false;
        }
    };
    std::size_t bytes = kMiB;
    while (!fits(bytes, 1)) bytes += kMiB;
    ASSERT_FALSE(fits(bytes, 12));
    const std::vector<std::int64_t> layers = choose_parts(shape.request({{bytes}, {kRoomy}}), 2);
    EXPECT_TRUE(fits(bytes, layers[0])) << layers[0];
    EXPECT_LE(layers[0], 2);
}

TEST(ChooseLayers, WhatDoesNotFitIsRefused) {
    const Shape shape;
    EXPECT_THROW(static_cast<void>(choose_parts(shape.request({{2 * kMiB}, {2 * kMiB}}), 2)), OutOfBudget);
    EXPECT_THROW(static_cast<void>(choose_parts(shape.request(std::vector<Room>(25, {kRoomy})), 25)), Unsupported);
}

}  // namespace
}  // namespace slipstream
