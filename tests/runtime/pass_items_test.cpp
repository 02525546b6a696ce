// A model as items: their order, their bytes, and what computing them takes.
#include "runtime/plan/pass_items.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "offload/transfer_ring.h"

#include "kernels/pack_weights.h"
#include "offload/transfer_ring.h"
#include "tests/support/layers.h"

namespace slipstream {
namespace {

constexpr std::size_t kChunkBytes = 2 * 256 * 32 * 2 * 2;  // K and V, 2 heads of 32, F16

// Two layers of d_model 64, 4 query and 2 kv heads of 32, d_ff 160; Q8_0 but for the LM head.
ModelConfig small_config() {
    ModelConfig config;
    config.d_model = 64;
    set_layers(config, {.n_layers = 2, .d_ff = 160, .n_q_heads = 4, .n_kv_heads = 2, .head_dim = 32});
    config.vocab = 100;
    return config;
}

ConstTensorView matrix(DType type, std::int64_t rows, std::int64_t cols) {
    return matrix_view<const std::byte>(nullptr, type, rows, cols);
}

ModelWeights small_weights() {
    ModelWeights weights;
    LayerWeights layer;
    layer[TensorRole::Q] = matrix(DType::Q8_0, 128, 64);
    layer[TensorRole::K] = matrix(DType::Q8_0, 64, 64);
    layer[TensorRole::V] = matrix(DType::F16, 64, 64);
    layer[TensorRole::AttnOut] = matrix(DType::Q8_0, 64, 128);
    layer[TensorRole::Gate] = matrix(DType::Q8_0, 160, 64);
    layer[TensorRole::Up] = matrix(DType::Q8_0, 160, 64);
    layer[TensorRole::Down] = matrix(DType::Q8_0, 64, 160);
    weights.layers = {layer, layer};
    weights.lm_head = matrix(DType::F16, 100, 64);
    return weights;
}

struct Fixture {
    ModelConfig config = small_config();
    ModelWeights weights = small_weights();
    std::vector<WeightItem> items;
    std::vector<PassItem> pass_items;

    explicit Fixture(std::size_t max_item_bytes, std::int64_t context_tokens = 1024, std::int64_t window = 0) {
        if (window > 0) set_windows(config, {window, 0});
        items = cut_weight_items(weights, WeightRounding::None, max_item_bytes);
        pass_items = make_pass_items({.config = &config,
                                      .weights = &weights,
                                      .items = items,
                                      .kv_dtype = DType::F16,
                                      .context_tokens = context_tokens});
    }
};

TEST(PassItems, ComeInReadingOrder) {
    for (const std::size_t limit : {std::size_t{1} << 30, std::size_t{4096}, std::size_t{1}}) {
        const Fixture made(limit);
        std::string order;
        std::int64_t next_item = 0;
        for (const PassItem& pass_item : made.pass_items) {
            if (pass_item.tag == PlanTag::Kv) {
                order += static_cast<char>('0' + pass_item.layer);
                EXPECT_EQ(pass_item.weight_item, -1);
                continue;
            }
            EXPECT_EQ(pass_item.weight_item, next_item++);
            const WeightItem& item = made.items[pass_item.weight_item];
            EXPECT_EQ(pass_item.bytes, item.bytes);
            EXPECT_EQ(pass_item.layer, item.layer);
            for (const WeightPart& part : item.parts) {
                const std::vector<TensorRole> roles = layer_matrices();
                const auto at = std::ranges::find(roles, part.role) - roles.begin();
                const char role = "qkvogudh"[at];  // h: the LM head, which is none of a layer's
                if (order.empty() || order.back() != role) order += role;
            }
        }
        EXPECT_EQ(order, "qkv0ogudqkv1ogudh") << limit;
        EXPECT_EQ(next_item, std::ssize(made.items));
    }
}

TEST(PassItems, WeightsAreWholeAndKnowTheirTypes) {
    const Fixture made(std::size_t{1} << 30);
    ASSERT_EQ(made.pass_items.size(), 7U);
    const PassItem& first = made.pass_items[0];
    EXPECT_EQ(first.unit_bytes, first.bytes);
    EXPECT_EQ(first.transfer_bytes, first.bytes);
    ASSERT_EQ(first.parts.size(), 3U);
    EXPECT_EQ(first.parts[0].dtype, DType::Q8_0);
    EXPECT_EQ(first.parts[0].bytes, packed_bytes(DType::Q8_0, 128, 64));
    EXPECT_EQ(first.parts[2].dtype, DType::F16);
    EXPECT_EQ(first.parts[2].bytes, packed_bytes(DType::F16, 64, 64));
    // 100 rows are packed as 112.
    EXPECT_EQ(made.pass_items.back().bytes, 112U * 64U * 2U);
}

TEST(PassItems, KvIsWholeChunksInExtents) {
    const Fixture made(std::size_t{1} << 30, 1025);
    const PassItem& kv = made.pass_items[1];
    EXPECT_EQ(kv.bytes, 5 * kChunkBytes);
    EXPECT_EQ(kv.unit_bytes, kChunkBytes);
    EXPECT_EQ(kv.transfer_bytes, 16 * kChunkBytes);
    EXPECT_EQ(kv.window_bytes, 0U);
}

TEST(PassItems, OfAWindowOneChunkMoreThanItsLengthIsReadAndARingIsKept) {
    const Fixture made(std::size_t{1} << 30, 4096, 600);
    EXPECT_EQ(made.pass_items[1].bytes, 11 * kChunkBytes);
    EXPECT_EQ(made.pass_items[4].bytes, 16 * kChunkBytes);
    EXPECT_EQ(made.pass_items[1].window_bytes, 4 * kChunkBytes);
    EXPECT_EQ(made.pass_items[4].window_bytes, 0U);
    // A window as long as the context hides nothing.
    EXPECT_EQ(Fixture(std::size_t{1} << 30, 1024, 900).pass_items[1].window_bytes, 0U);
}

TEST(PlanProgram, TimesFollowFromBytesAndTokens) {
    const Fixture made(std::size_t{1} << 30);
    PassRates rates;
    rates.weights[static_cast<std::size_t>(DType::Q8_0)] = ByteCost::roofline(1e6, 1e6, 0.5);  // even at 2 tokens
    rates.weights[static_cast<std::size_t>(DType::F16)] = ByteCost::roofline(2e6, 1e9, 1.0);
    rates.kv = ByteCost::roofline(4e6, 1e6, 0.25);  // even at one vector
    rates.layer_seconds = 0.25;
    rates.layer_token_seconds = 0.5;
    const auto schedule = plan_schedule(made.pass_items, rates, {.n_tokens = 4});
    ASSERT_EQ(schedule.size(), 7U);
    const double q8 = static_cast<double>(packed_bytes(DType::Q8_0, 128, 64) + packed_bytes(DType::Q8_0, 64, 64));
    EXPECT_DOUBLE_EQ(schedule[0].compute_seconds, q8 * 2e-6 + 64 * 64 * 2 * 0.5e-6);
    EXPECT_DOUBLE_EQ(schedule[1].compute_seconds, 4.0 * kChunkBytes * 8 * 0.25e-6 + 0.25 + 4 * 0.5);
    EXPECT_EQ(schedule[0].host_bytes, 0.0);
    rates.host_bytes_per_second = 10.0;
    EXPECT_DOUBLE_EQ(plan_schedule(made.pass_items, rates, {.n_tokens = 4})[0].host_bytes,
                     10.0 * schedule[0].compute_seconds);
}

TEST(PlanProgram, HoldsAsMuchKvAsTheTextHasFullChunks) {
    const Fixture made(std::size_t{1} << 30, 4096, 600);
    const auto bytes = [&](std::int64_t text_tokens, std::size_t pass_item) {
        return plan_schedule(made.pass_items, {}, {.text_tokens = text_tokens})[pass_item];
    };
    EXPECT_EQ(bytes(255, 4).bytes, 0U);
    EXPECT_EQ(bytes(256, 4).bytes, kChunkBytes);
    EXPECT_EQ(bytes(1000, 4).bytes, 3 * kChunkBytes);
    EXPECT_EQ(bytes(100'000, 4).bytes, 16 * kChunkBytes);
    EXPECT_EQ(bytes(1000, 1).read_bytes, 0U);
    EXPECT_EQ(bytes(2000, 1).read_bytes, 4 * kChunkBytes);
}

TEST(LeastRing, HoldsTwoBlocksAndALayer) {
    // Of KV two chunks, however long the context is: copies get smaller with the ring.
    EXPECT_EQ(least_ring_bytes(Fixture(std::size_t{1} << 30, 256).pass_items), 2 * kChunkBytes);
    EXPECT_EQ(least_ring_bytes(Fixture(std::size_t{1} << 30, 1 << 20).pass_items), 2 * kChunkBytes);
    // Of weights a layer's, cut coarsely or finely; those of the LM head are no layer.
    const auto weights_alone = [](std::size_t max_item_bytes) {
        std::vector<PassItem> pass_items = Fixture(max_item_bytes).pass_items;
        std::erase_if(pass_items, [](const PassItem& pass_item) { return pass_item.tag == PlanTag::Kv; });
        return pass_items;
    };
    const std::vector<PassItem> coarse = weights_alone(std::size_t{1} << 30);
    const std::size_t layer = coarse[0].bytes + coarse[1].bytes;
    // Wherever in the ring it begins: items are not cut.
    EXPECT_EQ(least_ring_bytes(coarse), TransferRing::region_bytes_for_run(layer, coarse[1].bytes));
    const std::vector<PassItem> fine = weights_alone(1024);
    EXPECT_GE(least_ring_bytes(fine), layer);
    EXPECT_LE(least_ring_bytes(fine), layer + 64 * fine.size() + 1024);
}

TEST(ItemLimit, IsSmallWhereTheBudgetIs) {
    EXPECT_EQ(item_limit(std::size_t{24} << 30), std::size_t{64} << 20);
    EXPECT_EQ(item_limit(static_cast<std::size_t>(-1)), std::size_t{64} << 20);
    EXPECT_EQ(item_limit(std::size_t{320} << 20), std::size_t{20} << 20);
    EXPECT_EQ(item_limit(1000), std::size_t{1} << 20);
}

}  // namespace
}  // namespace slipstream
