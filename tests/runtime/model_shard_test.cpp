// Parts of models: items that two models have in common, items of another rounding, and shares of the matrices.
#include "runtime/model/model_shard.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "tests/support/error_text.h"
#include "tests/support/shard_check.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = 512;

/// Logits of a few tokens, one behind the other.
std::vector<float> logits_of(const Model& model, PinnedArena& arena) {
    KvCache cache(model.device(), model.kv_layouts(), kContext, 16);
    std::unique_ptr<PassStream> stream;
    const PassReads reads{&model, &cache};
    if (reads.streams()) stream = std::make_unique<PassStream>(std::vector{reads}, arena, std::size_t{1} << 20);
    Forward forward(model, {.max_tokens = 16, .max_logit_rows = 16}, stream.get());
    const std::vector<TokenId> tokens{5, 9, 11, 40, 41};
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> wanted;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
        wanted.push_back(static_cast<std::int32_t>(i));
    }
    const ConstTensorView logits = forward.run(cache, tokens, nodes, wanted);
    const float* first = float_row(logits, 0);
    return {first, first + logits.rows() * logits.cols()};
}

class SharedItems : public testing::Test {
protected:
    /// Every third item streams.
    LoadOptions streamed() {
        LoadOptions options{.context_tokens = kContext};
        options.placement = {.max_item_bytes = 3000, .arena = &arena_};
        const std::size_t n = cut_weight_items(files_->weights(), WeightRounding::None, 3000).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 == 1);
        return options;
    }
    [[nodiscard]] std::size_t device_bytes() { return device_.budget().used_bytes(); }

    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.weight_type = DType::BF16});
    CpuDevice device_{{.n_threads = 1}};
    PinnedArena arena_{{.limit_bytes = std::size_t{64} << 20, .device = &device_}};
};

TEST_F(SharedItems, TwoModelsOfTheSameItemsGiveTheSameLogitsAndTakeMemoryOnce) {
    for (const LoadOptions& options : {LoadOptions{.context_tokens = kContext}, streamed()}) {
        const Model first(*files_, device_, options);
        const std::size_t on_device = device_bytes();
        const std::size_t on_host = arena_.used_bytes();
        const Model second(*files_, device_,
                           {.context_tokens = kContext,
                            .shared = {.model = &first, .own = std::vector<bool>(first.items().size(), false)}});
        EXPECT_EQ(device_bytes(), on_device);
        EXPECT_EQ(arena_.used_bytes(), on_host);
        EXPECT_EQ(second.streamed_bytes(), first.streamed_bytes());
        EXPECT_EQ(logits_of(second, arena_), logits_of(first, arena_));
    }
}

// One item, as it would be with all of them rounded; what stands in the others is the first model's.
TEST_F(SharedItems, OneItemMayBeRoundedOtherwise) {
    const Model first(*files_, device_, {.context_tokens = kContext});
    const Model rounded(*files_, device_, {.context_tokens = kContext, .rounding = WeightRounding::Q8_0});
    ASSERT_EQ(first.items().size(), rounded.items().size());
    const std::vector<float> expected = logits_of(first, arena_);
    for (std::size_t i = 0; i < first.items().size(); ++i) {
        std::vector<bool> own(first.items().size(), false);
        own[i] = true;
        const std::size_t before = device_bytes();
        const Model second(
            *files_, device_,
            {.context_tokens = kContext, .rounding = WeightRounding::Q8_0, .shared = {.model = &first, .own = own}});
        EXPECT_EQ(device_bytes() - before, rounded.items()[i].bytes);
        for (std::size_t j = 0; j < own.size(); ++j) {
            const auto item = static_cast<std::int32_t>(j);
            EXPECT_EQ(second.items()[j].rounding, own[j] ? WeightRounding::Q8_0 : WeightRounding::None);
            if (own[j]) {
                ASSERT_EQ(second.items()[j].bytes, rounded.items()[j].bytes);
                EXPECT_EQ(std::memcmp(second.item_data(item), rounded.item_data(item), second.items()[j].bytes), 0);
            } else {
                EXPECT_EQ(second.item_data(item), first.item_data(item));
            }
        }
        const std::vector<float> found = logits_of(second, arena_);
        double squares = 0.0, errors = 0.0;
        for (std::size_t k = 0; k < found.size(); ++k) {
            squares += double{expected[k]} * expected[k];
            errors += (double{found[k]} - expected[k]) * (double{found[k]} - expected[k]);
        }
        EXPECT_GT(errors / squares, 1e-9) << "item " << i;
        EXPECT_LT(errors / squares, 1e-2) << "item " << i;
    }
}

// A copy on the device of what streams, the rest in common: a model that needs no stream.
TEST_F(SharedItems, WhatStreamsMayHaveAResidentCopy) {
    const LoadOptions options = streamed();
    const Model first(*files_, device_, options);
    std::size_t copied = 0;
    for (std::size_t i = 0; i < first.items().size(); ++i)
        if (options.placement.streams[i])
            copied += with_rounding(files_->weights(), first.items()[i], WeightRounding::Q8_0).bytes;
    const std::size_t before = device_bytes();
    const Model copy(*files_, device_,
                     {.context_tokens = kContext,
                      .rounding = WeightRounding::Q8_0,
                      .shared = {.model = &first, .own = options.placement.streams}});
    EXPECT_FALSE(copy.streams_weights());
    EXPECT_EQ(device_bytes() - before, copied);
    EXPECT_NE(logits_of(copy, arena_), logits_of(first, arena_));
    const Model exact(*files_, device_,
                      {.context_tokens = kContext, .shared = {.model = &first, .own = options.placement.streams}});
    EXPECT_FALSE(exact.streams_weights());
    EXPECT_EQ(logits_of(exact, arena_), logits_of(first, arena_));
}

TEST(ModelShards, MakeTheWholeTogether) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
        const auto files = make_tiny_model(
            {.d_ff = 160, .n_layers = 2, .n_q_heads = 6, .n_kv_heads = 3, .head_dim = 16, .weight_type = type});
        CpuDevice device({.n_threads = 1});
        const ModelShard shards[] = {{0, 2, 0, 96, 0, 30}, {2, 1, 96, 64, 30, 67}};
        expect_shards_make_the_whole(device, *files, shards);
    }
}

// K types lie in blocks of 256 columns, and activations are rounded by these: cut where they meet, parts sum up to the
// whole as exactly as floats do. A mixture has V and down of another type.
TEST(ModelShards, OfKTypesMakeTheWholeTogether) {
    const std::pair<DType, std::optional<DType>> mixtures[] = {
        {DType::Q3_K, DType::Q5_K},  {DType::Q4_K, DType::Q6_K},    {DType::Q5_K, std::nullopt},
        {DType::Q6_K, std::nullopt}, {DType::IQ4_XS, std::nullopt}, {DType::Q2_K, DType::Q3_K}};
    for (const auto& [type, v_type] : mixtures) {
        SCOPED_TRACE(dtype_name(type));
        const auto files = make_tiny_model({.d_model = 256,
                                            .d_ff = 768,
                                            .n_layers = 1,
                                            .n_q_heads = 12,
                                            .n_kv_heads = 3,
                                            .head_dim = 64,
                                            .weight_type = type,
                                            .v_type = v_type});
        CpuDevice device({.n_threads = 1});
        const ModelShard shards[] = {{0, 2, 0, 512, 0, 30}, {2, 1, 512, 256, 30, 67}};
        expect_shards_make_the_whole(device, *files, shards);
        const ModelShard inside{0, 2, 0, 384, 0, 97};
        EXPECT_THAT(error_text<Unsupported>([&] { const Model thin(*files, device, {.shard = inside}); }),
                    testing::HasSubstr("is in blocks of 256 columns"));
    }
}

// Rows of the LM head dealt out: each model's logits are columns of the whole's.
TEST(ModelShards, RowsOfTheVocabularyAreTheSameLogits) {
    const auto files = make_tiny_model({.weight_type = DType::Q8_0});
    CpuDevice device({.n_threads = 1});
    PinnedArena arena({.limit_bytes = std::size_t{1} << 20, .device = &device});
    const Model whole(*files, device, {.context_tokens = kContext});
    const std::vector<float> expected = logits_of(whole, arena);
    const std::int64_t vocab = whole.config().vocab;
    for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, 40}, {40, 57}}) {
        ModelShard shard = whole_shard(whole.config());
        shard.first_vocab = first;
        shard.n_vocab = n;
        const Model thin(*files, device, {.context_tokens = kContext, .shard = shard});
        const std::vector<float> found = logits_of(thin, arena);
        ASSERT_EQ(std::ssize(found) / n, std::ssize(expected) / vocab);
        for (std::int64_t row = 0; row < std::ssize(found) / n; ++row)
            EXPECT_TRUE(std::equal(found.begin() + row * n, found.begin() + (row + 1) * n,
                                   expected.begin() + row * vocab + first));
    }
}

TEST(ModelShards, BiasesGoWithTheirRowsAndOfASumWithTheFirst) {
    const auto files = make_tiny_model({});
    ModelWeights weights = files->weights();
    const std::vector<float> values(64, 1.0F);
    const auto bias = [&](std::int64_t n) {
        return vector_view(reinterpret_cast<const std::byte*>(values.data()), DType::F32, n);
    };
    for (LayerWeights& layer : weights.layers) {
        layer[TensorRole::QBias] = layer[TensorRole::AttnOutBias] = bias(64);
        layer[TensorRole::KBias] = layer[TensorRole::VBias] = bias(32);
    }
    const ModelWeights first = shard_weights(weights, files->config(), {0, 1, 0, 48, 0, 97});
    const ModelWeights second = shard_weights(weights, files->config(), {1, 1, 48, 48, 0, 97});
    EXPECT_EQ(first.layers[1][TensorRole::QBias].cols(), 32);
    EXPECT_EQ(second.layers[1][TensorRole::QBias].data, bias(64).data + 32 * sizeof(float));
    EXPECT_EQ(second.layers[1][TensorRole::KBias].data, bias(64).data + 16 * sizeof(float));
    EXPECT_EQ(second.layers[1][TensorRole::VBias].cols(), 16);
    EXPECT_EQ(first.layers[1][TensorRole::AttnOutBias].cols(), 64);
    EXPECT_TRUE(second.layers[1][TensorRole::AttnOutBias].empty());
}

TEST(ModelShards, ThatWouldCutThroughABlockAreRefused) {
    const auto files = make_tiny_model({.head_dim = 8, .weight_type = DType::Q8_0});
    CpuDevice device({.n_threads = 1});
    const auto refusal = [&](const ModelShard& shard) {
        return error_text<Unsupported>([&] { const Model thin(*files, device, {.shard = shard}); });
    };
    EXPECT_EQ(refusal({0, 2, 32, 40, 0, 97}),
              "the feed-forward's down matrix of layer 0 is in blocks of 32 columns (Q8_0), and columns 32 to 71 would "
              "cut through one; choose other shares, or split the model by layers");
    EXPECT_THAT(
        refusal({1, 1, 0, 96, 0, 97}),
        testing::StartsWith("the attention output of layer 0 is in blocks of 32 columns (Q8_0), and columns 16 to "
                            "31 would"));
    EXPECT_EQ(refusal({0, 2, 32, 64, 50, 47}), "nothing thrown");
}

}  // namespace
}  // namespace slipstream
