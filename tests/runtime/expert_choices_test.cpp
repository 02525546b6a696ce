// What passes note of the experts that their tokens chose: the same wherever the model lies and however the text is cut
// into passes, and what was computed.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"
#include "runtime/pass/expert_choices.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_model.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kLayers = 4;  // the first is dense
constexpr std::int64_t kExperts = 9;

std::unique_ptr<ModelFiles> mixture(DType type, std::int64_t n_chosen, bool shared_expert = false) {
    return make_tiny_model({.n_layers = kLayers,
                            .weight_type = type,
                            .n_experts = kExperts,
                            .n_chosen = n_chosen,
                            .shared_expert = shared_expert});
}

std::unique_ptr<ModelFiles> gpt_oss() {
    return make_tiny_model({.n_layers = kLayers,
                            .window = 300,
                            .weight_type = DType::Q8_0,
                            .biases = true,
                            .output_bias = true,
                            .n_experts = kExperts,
                            .n_chosen = 4,
                            .gpt_oss = true});
}

using Ids = std::vector<std::uint16_t>;

/// Returns [layers of the whole model][tokens]: what each token chose, in passes of up to `pass_tokens`. What is
/// counted of distinct experts is that of these passes and tokens.
std::vector<std::vector<Ids>> routes(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                                     std::span<const TokenId> tokens, std::int64_t pass_tokens) {
    SplitEngine engine(files, parts, streams);
    const std::vector<ModelShard> shards = deal_parts(SplitKind::Layers, files.config(), files.weights(), parts);
    std::vector<std::unique_ptr<ExpertChoices>> choices;
    std::vector<ExpertChoices*> pointers;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        choices.push_back(
            std::make_unique<ExpertChoices>(engine.models[rank]->config(), engine.target->shape().max_nodes));
        pointers.push_back(choices.back().get());
    }
    engine.target->note_choices_in(pointers);
    std::vector<std::vector<Ids>> all(kLayers);
    std::vector<DistinctExperts> of_passes(kLayers);
    for (std::int64_t begin = 0; begin < std::ssize(tokens); begin += pass_tokens) {
        const auto part = tokens.subspan(begin, std::min(pass_tokens, std::ssize(tokens) - begin));
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < part.size(); ++i)
            nodes.push_back(engine.target->add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
        const std::vector<ExpertFigures> before = engine.runner->expert_figures();
        static_cast<void>(engine.target->run({.tokens = part, .nodes = nodes}));
        const std::vector<ExpertFigures> after = engine.runner->expert_figures();
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
            for (std::int64_t own = 0; own < parts[rank]; ++own) {
                const std::int64_t layer = shards[rank].layers.empty() ? own : shards[rank].layers[own];
                std::set<std::uint16_t> needed;
                for (const NodeId node : nodes) {
                    const std::span<const std::uint16_t> chosen = choices[rank]->of(own, node);
                    all[layer].emplace_back(chosen.begin(), chosen.end());
                    needed.insert(chosen.begin(), chosen.end());
                }
                EXPECT_EQ((after[layer] - before[layer]).needed, needed.size()) << "layer " << layer;
                if (!needed.empty()) of_passes[layer].add(std::ssize(part), std::ssize(needed));
            }
        engine.target->commit(nodes);
    }
    const std::vector<ExpertFigures> figures = engine.runner->expert_figures();
    const std::vector<DistinctExperts> distinct = engine.runner->distinct_experts();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(figures[layer].distinct, of_passes[layer]) << "layer " << layer;
        NeighbourExperts neighbours(kExperts);
        for (const Ids& chosen : all[layer]) neighbours.add(chosen);
        of_passes[layer] += neighbours.distinct();
        EXPECT_EQ(distinct[layer], of_passes[layer]) << "layer " << layer;
    }
    return all;
}

TEST(ExpertChoices, AreThoseOfSingleTokensWhereverTheModelLies) {
    const std::vector<TokenId> tokens = prompt_of(70);
    for (const auto& files : {mixture(DType::BF16, 3), mixture(DType::Q8_0, 2, true), gpt_oss()}) {
        const auto expected = routes(*files, {kLayers}, Streams::Nothing, tokens, 1);
        EXPECT_THAT(expected[0], Each(testing::IsEmpty())) << "the first layer is dense";
        for (std::size_t layer = 1; layer < kLayers; ++layer)
            for (const Ids& ids : expected[layer]) {
                EXPECT_EQ(std::ssize(ids), files->config().experts(static_cast<std::int64_t>(layer)).n_chosen);
                EXPECT_EQ(std::ranges::adjacent_find(ids, std::ranges::greater_equal()), ids.end());
                EXPECT_LT(ids.back(), kExperts);
            }
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {1, 3}, {2, 2}})
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Both})
                for (const std::int64_t pass_tokens : {7, 64})
                    EXPECT_EQ(routes(*files, parts, streams, tokens, pass_tokens), expected);
    }
}

TEST(ExpertChoices, AreForgottenWhereAnotherTokenTakesTheRow) {
    const std::unique_ptr<ModelFiles> files = mixture(DType::F32, 2);
    ExpertChoices choices(files->config(), 3);
    EXPECT_TRUE(choices.of(1, NodeId{1}).empty()) << "nothing is noted at first";
    const std::array<NodeId, 2> nodes{NodeId{1}, NodeId{2}};
    const std::array<std::int32_t, 4> chosen{0, 8, 5, 3};
    choices.note(1, nodes, chosen.data());
    choices.note(2, nodes, chosen.data());
    EXPECT_THAT(choices.of(1, nodes[0]), ElementsAre(0, 8));
    EXPECT_TRUE(choices.of(0, nodes[0]).empty()) << "the first layer is dense";
    choices.forget(nodes[0]);
    EXPECT_TRUE(choices.of(1, nodes[0]).empty());
    EXPECT_TRUE(choices.of(2, nodes[0]).empty());
    EXPECT_THAT(choices.of(1, nodes[1]), ElementsAre(5, 3));
    choices.note(1, std::span(nodes).first(1), chosen.data() + 2);
    EXPECT_THAT(choices.of(1, nodes[0]), ElementsAre(5, 3));
}

TEST(ExpertChoices, AreTheExpertsThatWereComputed) {
    const auto files = mixture(DType::BF16, 3);
    const std::vector<TokenId> tokens = prompt_of(20);
    const auto chosen = routes(*files, {kLayers}, Streams::Nothing, tokens, 20);
    for (std::uint16_t expert = 0; expert < kExperts; ++expert) {
        // The error names the first token whose row goes through the damaged matrix.
        auto* const row = const_cast<std::byte*>(files->weights().layers[2].experts[expert][TensorRole::Up].row(3));
        std::array<std::byte, sizeof(BFloat16)> before;
        std::memcpy(before.data(), row, before.size());
        const BFloat16 nan = to_bfloat16(std::numeric_limits<float>::quiet_NaN());
        std::memcpy(row, &nan, sizeof(nan));
        const auto first = std::ranges::find_if(
            chosen[2], [&](const Ids& ids) { return std::ranges::find(ids, expert) != ids.end(); });
        const std::string error =
            error_text([&] { static_cast<void>(routes(*files, {kLayers}, Streams::Nothing, tokens, 20)); });
        if (first == chosen[2].end()) {
            EXPECT_EQ(error, "nothing thrown");
        } else {
            EXPECT_THAT(error, HasSubstr(fmt::format("the activation of expert {} gives the token at position {} ",
                                                     expert, first - chosen[2].begin())));
        }
        std::memcpy(row, before.data(), before.size());
    }
}

TEST(ExpertChoices, TiesGoToTheLowestAndAllExpertsAreAscending) {
    const auto files = mixture(DType::F32, 3);
    for (std::size_t layer = 1; layer < kLayers; ++layer) {
        const ConstTensorView router = files->weights().layers[layer][TensorRole::Router];
        for (std::int64_t row = 0; row < kExperts; ++row)
            std::fill_n(const_cast<float*>(float_row(router, row)), router.cols(), 0.0F);
    }
    EXPECT_THAT(routes(*files, {kLayers}, Streams::Nothing, prompt_of(9), 4)[3], Each(ElementsAre(0, 1, 2)));

    const auto all = mixture(DType::F32, kExperts);
    EXPECT_THAT(routes(*all, {kLayers}, Streams::Nothing, prompt_of(9), 9)[1],
                Each(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8)));
}

// The gate of a shared expert is chosen by the same op, as one expert for each token.
TEST(ExpertChoices, AreNotThoseOfTheGateOfASharedExpert) {
    const GoldenModel golden = load_golden_model("qwen3_next");
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    const auto files = ModelFiles::open(folder.path());
    CpuDevice device({.n_threads = 1});
    const std::int64_t n = std::min<std::int64_t>(std::ssize(golden.tokens), 16);
    Model model(*files, device, {.context_tokens = golden.context_tokens});
    KvCache cache(device, model.kv_layouts(), golden.context_tokens, n, {.max_drafts = n});
    Forward forward(model, {.max_tokens = n, .max_logit_rows = 1, .max_drafts = n});
    ExpertChoices choices(model.config(), n);
    forward.note_choices_in(&choices);
    std::vector<NodeId> nodes;
    for (std::int64_t i = 0; i < n; ++i)
        nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
    static_cast<void>(forward.run(cache, std::span(golden.tokens).first(n), nodes, {}));
    std::int64_t n_layers = 0;
    for (std::int64_t layer = 0; layer < model.config().n_layers(); ++layer) {
        if (model.weights().layers[layer][TensorRole::SharedGate].empty()) continue;
        ++n_layers;
        std::set<std::uint16_t> needed;
        for (const NodeId node : nodes) {
            const auto chosen = choices.of(layer, node);
            EXPECT_EQ(std::ranges::adjacent_find(chosen, std::ranges::greater_equal()), chosen.end());
            needed.insert(chosen.begin(), chosen.end());
        }
        EXPECT_EQ(needed.size(), forward.expert_figures()[layer].needed);
        EXPECT_GT(std::ssize(needed), model.config().experts(layer).n_chosen);
    }
    EXPECT_GT(n_layers, 0);
}

}  // namespace
}  // namespace slipstream
