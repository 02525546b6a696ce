// Where the matrices of a model are cut: between kv heads, between blocks, in proportion; and what cannot be.
#include "runtime/ranks/tensor_split.h"

#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/layers.h"
#include "tests/support/shape_of_weights.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> heads(const ModelFiles& files, std::vector<double> shares) {
    return heads_by_share(files.config(), files.weights(), shares);
}

TEST(TensorSplit, HeadsGoByShareColumnsAndRowsWithThem) {
    const auto files =
        make_tiny_model({.d_ff = 160, .n_q_heads = 6, .n_kv_heads = 3, .head_dim = 32, .weight_type = DType::Q8_0});
    EXPECT_THAT(heads(*files, {1, 1}), ElementsAre(2, 1));
    EXPECT_THAT(heads(*files, {1, 2}), ElementsAre(1, 2));
    EXPECT_THAT(heads(*files, {5, 5, 5}), ElementsAre(1, 1, 1));
    const auto shards = deal_heads(files->config(), files->weights(), std::vector<std::int64_t>{2, 1});
    EXPECT_EQ(shards[0].n_kv_groups, 2);
    EXPECT_EQ(shards[0].n_ffn, 96);
    EXPECT_EQ(shards[0].n_vocab, 64);
    EXPECT_EQ(shards[1].first_kv_group, 2);
    EXPECT_EQ(shards[1].first_ffn, 96);
    EXPECT_EQ(shards[1].n_ffn, 64);
    EXPECT_EQ(shards[1].first_vocab, 64);
    EXPECT_EQ(shards[1].n_vocab, 33);
    EXPECT_TRUE(shards[0].layers.empty()) << "all of them";
}

TEST(TensorSplit, WhatCannotBeCutIsRefusedByName) {
    const auto files = make_tiny_model({});
    EXPECT_EQ(error_text<Unsupported>([&] {
                  static_cast<void>(heads(*files, {1, 1, 1}));
              }),
              "2 kv heads cannot be shared among 3 devices; name fewer, or split the model by layers");
    EXPECT_THAT(error_text<Unsupported>([&] {
                    static_cast<void>(heads(*files, {9, 1}));
                }),
                HasSubstr("of 2 kv heads is less than one kv head, for device 2 of 2"));
    const auto thin = make_tiny_model({.d_ff = 16});
    EXPECT_EQ(error_text<Unsupported>([&] {
                  static_cast<void>(deal_heads(thin->config(), thin->weights(), std::vector<std::int64_t>{1, 1}));
              }),
              "a feed-forward in blocks of 16 columns of 16 cannot be shared among 2 devices");
}

// Blocks of 256 columns, and a head's queries have 64 of them.
TEST(TensorSplit, HeadsInOneBlockStayTogether) {
    const auto files = make_tiny_model({.d_model = 256,
                                        .d_ff = 768,
                                        .n_layers = 1,
                                        .n_q_heads = 8,
                                        .n_kv_heads = 8,
                                        .head_dim = 64,
                                        .weight_type = DType::Q4_K});
    EXPECT_EQ(heads_together(files->config(), files->weights()), 4);
    EXPECT_THAT(heads(*files, {1, 1}), ElementsAre(4, 4));
    EXPECT_THAT(error_text<Unsupported>([&] {
                    static_cast<void>(heads(*files, {1, 1, 1}));
                }),
                "8 kv heads, 4 of which are in the same blocks of the attention output's columns cannot be shared "
                "among 3 devices; name fewer, or split the model by layers");
    EXPECT_THROW(static_cast<void>(deal_heads(files->config(), files->weights(), std::vector<std::int64_t>{3, 5})),
                 Unsupported);
    const auto shards = deal_heads(files->config(), files->weights(), std::vector<std::int64_t>{4, 4});
    EXPECT_EQ(shards[0].n_ffn.value() % 256, 0);
    EXPECT_GE(shards[0].n_ffn, 256);
}

TEST(TensorSplit, EveryHeadColumnAndRowHasOneOwner) {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        ModelConfig config;
        std::vector<std::int64_t> n_heads;
        for (unsigned rank = 0; rank <= random() % 5; ++rank) n_heads.push_back(1 + random() % 12);
        const std::int64_t n_kv_heads = std::accumulate(n_heads.begin(), n_heads.end(), std::int64_t{0});
        config.d_model = 256;
        const std::int64_t d_ff = 16 * (std::ssize(n_heads) + random() % 200);
        set_layers(config, {.d_ff = d_ff, .n_q_heads = 2 * n_kv_heads, .n_kv_heads = n_kv_heads, .head_dim = 64});
        config.vocab = 16 * std::ssize(n_heads) + random() % 3000;
        const ModelWeights weights = shape_of_weights(config);
        const auto shards = deal_heads(config, weights, n_heads);
        std::int64_t head = 0, column = 0, row = 0;
        for (std::size_t rank = 0; rank < shards.size(); ++rank) {
            EXPECT_EQ(shards[rank].first_kv_group, head);
            EXPECT_EQ(shards[rank].n_kv_groups, n_heads[rank]);
            EXPECT_EQ(shards[rank].first_ffn, column);
            EXPECT_EQ(column % 16, 0);
            EXPECT_GE(shards[rank].n_ffn, 1);
            EXPECT_EQ(shards[rank].first_vocab, row);
            EXPECT_GE(shards[rank].n_vocab, 1);
            head += shards[rank].n_kv_groups.value();
            column += shards[rank].n_ffn.value();
            row += shards[rank].n_vocab;
        }
        EXPECT_EQ(head, n_kv_heads);
        EXPECT_EQ(column, d_ff);
        EXPECT_EQ(row, config.vocab);
    }
}

}  // namespace
}  // namespace slipstream
