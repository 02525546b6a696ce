// E1 through the whole model: the logits of a token are the same bits whatever else its pass carries.
#include "runtime/pass/forward.h"

#include <ostream>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

struct Case {
    const char* name;
    TinyModelOptions options;
    CpuForm form;
};

void PrintTo(const Case& which, std::ostream* out) {
    *out << which.name;
}

class ForwardTest : public testing::TestWithParam<Case> {
protected:
    void SetUp() override {
        if (!cpu_has_form(GetParam().form)) GTEST_SKIP() << "this machine has no " << cpu_form_name(GetParam().form);
    }
};

// A model on a device of its own, with a cache.
struct Engine {
    Engine(const Case& which, int n_threads, std::int64_t max_tokens = 1025)
        : files(make_tiny_model(which.options)),
          device({.n_threads = n_threads, .form = which.form}),
          model(*files, device, {}),
          cache(device, model.kv_layouts(), model.context_tokens(), max_tokens),
          forward(model, {.max_tokens = max_tokens, .max_logit_rows = max_tokens}) {}

    // Logits of `tokens` behind `parents` (indices into tokens, -1 = committed tip) in one pass, every row.
    std::vector<std::vector<float>> run(const std::vector<TokenId>& tokens, const std::vector<int>& parents) {
        nodes.clear();
        std::vector<std::int32_t> rows;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            nodes.push_back(cache.add_node(parents[i] < 0 ? kCommittedTip : nodes[parents[i]]));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        const ConstTensorView logits = forward.run(cache, tokens, nodes, rows);
        std::vector<std::vector<float>> out;
        for (std::int64_t i = 0; i < logits.rows(); ++i)
            out.emplace_back(float_row(logits, i), float_row(logits, i) + logits.cols());
        return out;
    }
    // Feeds a chain in passes of at most `n` and commits it; logits of every token.
    std::vector<std::vector<float>> feed(const std::vector<TokenId>& tokens, std::size_t n) {
        std::vector<std::vector<float>> all;
        for (std::size_t at = 0; at < tokens.size(); at += n) {
            const std::vector<TokenId> chunk(
                tokens.begin() + static_cast<std::ptrdiff_t>(at),
                tokens.begin() + static_cast<std::ptrdiff_t>(std::min(tokens.size(), at + n)));
            std::vector<int> parents;
            for (std::size_t i = 0; i < chunk.size(); ++i) parents.push_back(static_cast<int>(i) - 1);
            for (auto& row : run(chunk, parents)) all.push_back(std::move(row));
            cache.commit(forward.exec(), nodes);
        }
        return all;
    }

    std::unique_ptr<ModelFiles> files;
    CpuDevice device;
    Model model;
    KvCache cache;
    Forward forward;
    std::vector<NodeId> nodes;
};

std::vector<TokenId> random_tokens(std::size_t n, std::int64_t vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens(n);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab));
    return tokens;
}

TEST_P(ForwardTest, AChainGivesTheSameBitsInPassesOfAnySize) {
    const std::vector<TokenId> tokens = random_tokens(530, GetParam().options.vocab, 3);
    Engine plain(GetParam(), 1);
    const auto expected = plain.feed(tokens, 1);
    for (const std::size_t n : {2, 7, 64, 513}) {
        for (const int n_threads : {1, 2}) {
            Engine engine(GetParam(), n_threads);
            EXPECT_TRUE(engine.feed(tokens, n) == expected) << "passes of " << n << ", " << n_threads << " threads";
        }
    }
}

TEST_P(ForwardTest, ATreeGivesEachNodeTheBitsOfPlainDecoding) {
    const std::vector<TokenId> prompt = random_tokens(250, GetParam().options.vocab, 4);
    Engine engine(GetParam(), 2);
    engine.feed(prompt, 64);
    // A tree of 120 nodes over a chunk border, siblings in random order, built in one pass and then again in three
    // passes that hang on one another's scratch rows.
    std::mt19937 random(9);
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    for (int i = 0; i < 120; ++i) {
        tokens.push_back(static_cast<TokenId>(random() % 97));
        parents.push_back(i == 0              ? -1
                          : random() % 2 == 0 ? i - 1
                                              : static_cast<int>(random() % static_cast<unsigned>(i)));
    }
    const auto whole = engine.run(tokens, parents);
    engine.cache.forget();
    std::vector<NodeId> nodes;
    std::vector<std::vector<float>> in_three;
    for (int begin = 0; begin < 120; begin += 40) {
        std::vector<std::int32_t> rows;
        std::vector<NodeId> chunk;
        for (int i = begin; i < begin + 40; ++i) {
            const int parent = parents[i];
            nodes.push_back(engine.cache.add_node(parent < 0 ? kCommittedTip : nodes[parent]));
            chunk.push_back(nodes.back());
            rows.push_back(i - begin);
        }
        const std::span<const TokenId> part(tokens.data() + begin, 40);
        const ConstTensorView logits = engine.forward.run(engine.cache, part, chunk, rows);
        for (std::int64_t i = 0; i < 40; ++i)
            in_three.emplace_back(float_row(logits, i), float_row(logits, i) + logits.cols());
    }
    EXPECT_TRUE(in_three == whole);

    for (int leaf = 7; leaf < 120; leaf += 11) {
        std::vector<int> path;
        for (int i = leaf; i >= 0; i = parents[i]) path.insert(path.begin(), i);
        Engine plain(GetParam(), 1);
        plain.feed(prompt, 512);
        std::vector<TokenId> chain;
        for (const int i : path) chain.push_back(tokens[i]);
        const auto rows = plain.feed(chain, 1);
        for (std::size_t i = 0; i < path.size(); ++i)
            ASSERT_TRUE(rows[i] == whole[path[i]]) << "node " << path[i] << " below leaf " << leaf;
    }
}

TEST_P(ForwardTest, CommittingAPathContinuesAsIfNothingElseHadBeenThere) {
    const std::vector<TokenId> prompt = random_tokens(100, GetParam().options.vocab, 5);
    Engine tree(GetParam(), 1);
    Engine plain(GetParam(), 1);
    tree.feed(prompt, 100);
    plain.feed(prompt, 100);
    tree.run({1, 2, 3, 4, 5, 6}, {-1, 0, 0, 2, 1, 3});
    tree.cache.commit(tree.forward.exec(), std::vector{NodeId(0), NodeId(2), NodeId(3), NodeId(5)});  // tokens 1 3 4 6
    plain.feed({1, 3, 4, 6}, 1);
    EXPECT_EQ(tree.cache.n_committed(), 104);
    EXPECT_TRUE(tree.feed({7, 8}, 2) == plain.feed({7, 8}, 1));
    tree.cache.truncate(50);
    plain.cache.truncate(50);
    EXPECT_TRUE(tree.feed({9}, 1) == plain.feed({9}, 1));
}

const TinyModelOptions kSmall{};
const TinyModelOptions kOdd{.d_model = 36,
                            .d_ff = 55,
                            .n_q_heads = 3,
                            .n_kv_heads = 1,
                            .head_dim = 10,
                            .window = 70,
                            .weight_type = DType::BF16,
                            .kv_dtype = DType::BF16};
const TinyModelOptions kQuantized{.weight_type = DType::Q8_0, .kv_dtype = DType::F32};
const TinyModelOptions kIq4Nl{.weight_type = DType::IQ4_NL};
const TinyModelOptions kMxfp4{.weight_type = DType::MXFP4};
const TinyModelOptions kIq4Xs{
    .d_model = 256, .d_ff = 256, .n_q_heads = 4, .n_kv_heads = 2, .head_dim = 64, .weight_type = DType::IQ4_XS};
const TinyModelOptions kQ2K{
    .d_model = 256, .d_ff = 512, .n_q_heads = 4, .n_kv_heads = 2, .head_dim = 64, .weight_type = DType::Q2_K};
// Fewer weights, since the scalar kernels are slow.
const TinyModelOptions kSmallIq4Xs{.d_model = 256,
                                   .d_ff = 256,
                                   .n_layers = 1,
                                   .n_q_heads = 4,
                                   .n_kv_heads = 1,
                                   .head_dim = 64,
                                   .weight_type = DType::IQ4_XS};
const TinyModelOptions kSmallQ2K{.d_model = 256,
                                 .d_ff = 256,
                                 .n_layers = 1,
                                 .n_q_heads = 4,
                                 .n_kv_heads = 1,
                                 .head_dim = 64,
                                 .weight_type = DType::Q2_K};
const TinyModelOptions kMixed{.n_layers = 4, .heads = {{4, 2, 16}, {4, 4, 32}, {3, 1, 10}, {6, 2, 16}}, .window = 70};

const TinyModelOptions kQ8{.kv_dtype = DType::Q8_0};
const TinyModelOptions kOddQ8{
    .d_model = 36, .d_ff = 55, .n_q_heads = 3, .n_kv_heads = 1, .head_dim = 10, .window = 70, .kv_dtype = DType::Q8_0};
const TinyModelOptions kMixedQ8{
    .n_layers = 4, .heads = {{4, 2, 16}, {4, 4, 32}, {3, 1, 10}, {6, 2, 16}}, .window = 70, .kv_dtype = DType::Q8_0};

INSTANTIATE_TEST_SUITE_P(
    Models, ForwardTest,
    testing::Values(
        Case{"scalar", kSmall, CpuForm::Scalar}, Case{"avx2", kSmall, CpuForm::Avx2},
        Case{"avx512", kSmall, CpuForm::Avx512}, Case{"avx2_odd_bf16_window", kOdd, CpuForm::Avx2},
        Case{"avx512_odd_bf16_window", kOdd, CpuForm::Avx512},
        Case{"avx512_bf16_odd_window", kOdd, CpuForm::Avx512Bf16}, Case{"avx2_mixed_layers", kMixed, CpuForm::Avx2},
        Case{"avx512_mixed_layers", kMixed, CpuForm::Avx512}, Case{"scalar_q8_kv", kQ8, CpuForm::Scalar},
        Case{"avx2_odd_q8_kv_window", kOddQ8, CpuForm::Avx2},
        Case{"avx512_q8_kv_mixed_layers", kMixedQ8, CpuForm::Avx512},
        Case{"avx512_bf16_odd_q8_kv_window", kOddQ8, CpuForm::Avx512Bf16}, Case{"avx2_q8_0", kQuantized, CpuForm::Avx2},
        Case{"avx512_q8_0", kQuantized, CpuForm::Avx512}, Case{"avx512_vnni_q8_0", kQuantized, CpuForm::Avx512Vnni},
        Case{"scalar_mxfp4", kMxfp4, CpuForm::Scalar}, Case{"avx2_mxfp4", kMxfp4, CpuForm::Avx2},
        Case{"avx512_vnni_mxfp4", kMxfp4, CpuForm::Avx512Vnni}, Case{"scalar_iq4_nl", kIq4Nl, CpuForm::Scalar},
        Case{"avx2_iq4_nl", kIq4Nl, CpuForm::Avx2}, Case{"avx512_vnni_iq4_nl", kIq4Nl, CpuForm::Avx512Vnni},
        Case{"scalar_iq4_xs", kSmallIq4Xs, CpuForm::Scalar}, Case{"avx2_iq4_xs", kIq4Xs, CpuForm::Avx2},
        Case{"avx512_vnni_iq4_xs", kIq4Xs, CpuForm::Avx512Vnni},
        Case{"avx512_bf16_iq4_xs", kIq4Xs, CpuForm::Avx512Bf16}, Case{"scalar_q2_k", kSmallQ2K, CpuForm::Scalar},
        Case{"avx2_q2_k", kQ2K, CpuForm::Avx2}, Case{"avx512_vnni_q2_k", kQ2K, CpuForm::Avx512Vnni},
        Case{"avx512_bf16_q2_k", kQ2K, CpuForm::Avx512Bf16}),
    [](const auto& which) { return std::string(which.param.name); });

TEST(Forward, CancelledPassReturnsNothingAndTheNextOneIsWhole) {
    const Case which{"cancel", kSmall, best_cpu_form()};
    Engine engine(which, 1);
    std::atomic<bool> cancel{true};
    const NodeId node = engine.cache.add_node(kCommittedTip);
    const TokenId token = 5;
    const std::int32_t row = 0;
    EXPECT_TRUE(engine.forward.run(engine.cache, {&token, 1}, {&node, 1}, {&row, 1}, {.cancel = &cancel}).empty());
    engine.cache.forget();
    Engine fresh(which, 1);
    EXPECT_TRUE(engine.feed({5, 6}, 1) == fresh.feed({5, 6}, 1));
}

}  // namespace
}  // namespace slipstream
