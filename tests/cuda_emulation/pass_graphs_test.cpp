// Passes as graphs on the emulated machine: the same texts and bits with graphs and without, over borders of chunks and
// after a text was cut; what the host still enqueues; how many graphs there are; a device that refuses them.
#include "runtime/pass/pass_graphs.h"
#include "runtime/loop/loop_needs.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/models/draft_model.h"
#include "emulated_machine.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/device_self_check.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;

constexpr std::int64_t kBudget = 6;
constexpr std::int64_t kContext = 2048;

std::vector<TokenId> prompt_of(std::size_t n) {
    std::vector<TokenId> prompt(n);
    for (std::size_t i = 0; i < n; ++i) prompt[i] = static_cast<TokenId>((i * 31 + i / 7 + 7) % 97);
    return prompt;
}

/// A model that is resident on a card.
struct Resident {
    Resident(const ModelFiles& files, GraphUse graphs, Timing timing = Timing::Latest, bool refuses = false)
        : machine({.timing = timing}),
          device(machine.table(), {.memory_bytes = std::size_t{256} << 20,
                                   .n_threads = 2,
                                   .on_announcement = [this](std::string_view line) { said.emplace_back(line); }}),
          model(files, device, {.context_tokens = kContext}),
          cache(device, model.kv_layouts(), kContext, SelfCheck::scratch_nodes_for(kBudget)) {
        machine.refuse_graphs(refuses);
        ForwardLimits limits = forward_limits_for(kBudget);
        limits.graphs = graphs;
        reserve_workspace(device, Forward::workspace_shapes(model.config(), model.kv_dtype(), limits));
        forward = std::make_unique<Forward>(model, limits);
    }

    /// Text behind a cache of `n_filled` positions of noise; logits of what was accepted go to `logits`.
    std::vector<TokenId> generate(const std::vector<TokenId>& prompt, std::int64_t n_filled, std::int64_t n_tokens,
                                  const SamplerOptions& sampling, Proposer& proposer) {
        if (cache.n_committed() < n_filled) fill_cache(cache, forward->exec(), n_filled, 7, {});
        Sampler sampler(sampling, model.config().vocab);
        ExactVerifier verifier(sampler);
        LogitLog log(proposer, logits);
        RankTarget target(*forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, log, {.budget = kBudget, .end_tokens = {}});
        loop.begin(prompt);
        for (std::int64_t left = n_tokens; left > 0;) left -= std::ssize(loop.step(left));
        return loop.text();
    }

    class LogitLog final : public Proposer {
    public:
        LogitLog(Proposer& proposer, std::vector<float>& rows) : proposer_(proposer), rows_(rows) {}
        void propose(TokenTree& tree, const ProposalLimits& limits) override { proposer_.propose(tree, limits); }
        LogitRequest logit_request() const override { return proposer_.logit_request(); }
        void observe(const Observation& observation) override {
            for (const TreeNode node : observation.accepted) {
                const std::span<const float> row = observation.logits.row(logits_row_of(node));
                rows_.insert(rows_.end(), row.begin(), row.end());
            }
            proposer_.observe(observation);
        }

    private:
        Proposer& proposer_;
        std::vector<float>& rows_;
    };

    std::vector<std::string> said;
    std::vector<float> logits;
    Machine machine;
    CudaDevice device;
    Model model;
    KvCache cache;
    std::unique_ptr<Forward> forward;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Found {
    std::vector<TokenId> text;
    std::vector<float> logits;
};

// Without a graph, without a guess.
Found plain_text(const ModelFiles& files, std::int64_t n_filled, std::int64_t n_tokens,
                 const SamplerOptions& sampling) {
    Resident plain(files, GraphUse::Never);
    NoProposer none;
    const std::vector<TokenId> prompt = prompt_of(static_cast<std::size_t>(n_filled) + 2);
    Found found{plain.generate(prompt, n_filled, n_tokens, sampling, none), plain.logits};
    EXPECT_EQ(plain.forward->graphs(), nullptr);
    EXPECT_EQ(plain.machine.n_graph_launches(), 0);
    return found;
}

constexpr SamplerOptions kGreedy{.temperature = 0.0};
const SamplerOptions kSampled{.temperature = 0.9, .seed = 4};

// Models on tensor cores and without, with windows, with one head size that is plain: texts that go over borders at
// which the graph changes (256, 512) and at which it does not (1024 to 1280).
TEST(PassGraphs, PlainDecodingHasTheSameBitsOverBordersOfChunks) {
    NoProposer none;
    for (const TinyModelOptions& of :
         {TinyModelOptions{.head_dim = 64, .weight_type = DType::BF16},
          TinyModelOptions{.head_dim = 16, .weight_type = DType::F32, .kv_dtype = DType::F32},
          TinyModelOptions{.n_layers = 3, .head_dim = 64, .window = 300, .weight_type = DType::Q8_0},
          TinyModelOptions{.head_dim = 64, .weight_type = DType::BF16, .kv_dtype = DType::Q8_0}}) {
        const auto files = make_tiny_model(of);
        for (const std::int64_t n_filled : {250, 508, 1275}) {
            const Found expected = plain_text(*files, n_filled, 12, kSampled);
            Resident graphs(*files, GraphUse::Allowed);
            const std::vector<TokenId> prompt = prompt_of(static_cast<std::size_t>(n_filled) + 2);
            EXPECT_EQ(graphs.generate(prompt, n_filled, 12, kSampled, none), expected.text);
            EXPECT_TRUE(same_bits(graphs.logits, expected.logits));
            const PassGraphFigures& figures = graphs.forward->graphs()->figures();
            EXPECT_GE(figures.launched, 12 - 1 - 2);
            EXPECT_EQ(figures.captured, n_filled == 1275 ? 1 : 2);
        }
    }
}

TEST(PassGraphs, TreesHaveTheSameBitsUnderEveryTiming) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
        const Found expected = plain_text(*files, 240, 40, sampling);
        for (const Timing timing : kTimings) {
            Resident graphs(*files, GraphUse::Allowed, timing);
            ScriptedProposer proposer(expected.text, 0.6, 3);
            EXPECT_EQ(graphs.generate(prompt_of(242), 240, 40, sampling, proposer), expected.text);
            EXPECT_TRUE(same_bits(graphs.logits, expected.logits));
            EXPECT_GT(graphs.forward->graphs()->figures().launched, proposer.n_proposed / 2);
        }
    }
}

// A text that is cut goes on with graphs that were captured behind a longer one.
TEST(PassGraphs, TextsThatAreCutGoOnWithTheSameBits) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    NoProposer none;
    std::vector<std::vector<TokenId>> texts[2];
    std::vector<float> logits[2];
    for (const GraphUse use : {GraphUse::Never, GraphUse::Allowed}) {
        Resident engine(*files, use);
        auto& found = texts[use == GraphUse::Allowed ? 1 : 0];
        found.push_back(engine.generate(prompt_of(512), 506, 8, kSampled, none));
        engine.cache.truncate(engine.forward->exec(), 250);
        found.push_back(engine.generate(prompt_of(252), 0, 10, kSampled, none));
        engine.cache.truncate(engine.forward->exec(), 251);
        found.push_back(engine.generate(prompt_of(254), 0, 10, kSampled, none));
        logits[use == GraphUse::Allowed ? 1 : 0] = engine.logits;
        if (use == GraphUse::Allowed) {
            EXPECT_GT(engine.forward->graphs()->figures().launched, 15);
        }
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

// What the host still enqueues of a pass: tokens, angles, arrays, the launch, logits; and rows to commit.
TEST(PassGraphs, TheHostEnqueuesAPassByAFewCalls) {
    const auto files = make_tiny_model({.n_layers = 4, .head_dim = 64, .weight_type = DType::BF16});
    std::int64_t kernels[2] = {};
    std::int64_t copies[2] = {};
    std::int64_t launches[2] = {};
    for (const GraphUse use : {GraphUse::Never, GraphUse::Allowed}) {
        Resident engine(*files, use);
        NoProposer none;
        engine.generate(prompt_of(30), 20, 4, kGreedy, none);
        const std::size_t i = use == GraphUse::Allowed ? 1 : 0;
        kernels[i] = -engine.machine.n_kernels();
        copies[i] = -engine.machine.n_copies();
        launches[i] = -engine.machine.n_graph_launches();
        const std::size_t peak = engine.device.budget().peak_bytes();
        const std::int64_t n_graphs = engine.machine.n_graphs();
        for (std::int64_t pass = 0; pass < 10; ++pass) {
            const TokenId token = 5;
            const NodeId node = engine.cache.add_node(kCommittedTip);
            const std::int32_t row = 0;
            static_cast<void>(engine.forward->run(engine.cache, {&token, 1}, {&node, 1}, {&row, 1}));
            engine.cache.forget();
        }
        kernels[i] += engine.machine.n_kernels();
        copies[i] += engine.machine.n_copies();
        launches[i] += engine.machine.n_graph_launches();
        EXPECT_EQ(engine.device.budget().peak_bytes(), peak);
        EXPECT_EQ(engine.machine.n_graphs(), n_graphs);
    }
    // 4 layers of 4 calls of matmuls, 2 norms, rotation and rows, attention, gate; then a norm and the logits.
    EXPECT_EQ(kernels[0], 10 * (4 * 9 + 2));
    EXPECT_EQ(launches[0], 0);
    EXPECT_EQ(kernels[1], 0);
    EXPECT_EQ(launches[1], 10);
    EXPECT_EQ(copies[1], 10 * 4);
}

// A chain that grows by a token a pass, none of it committed: one token at the end of ever more rows, on tensor cores
// and plainly. Its graph changes where 64 rows are full, and serves all the others.
TEST(PassGraphs, OneTokenBelowManyHasTheSameBits) {
    for (const TinyModelOptions& of :
         {TinyModelOptions{.n_layers = 1, .head_dim = 64, .weight_type = DType::BF16},
          TinyModelOptions{.n_layers = 1, .head_dim = 16, .weight_type = DType::F32, .kv_dtype = DType::F32}}) {
        const auto files = make_tiny_model(of);
        std::vector<float> logits[2];
        for (const GraphUse use : {GraphUse::Never, GraphUse::Allowed}) {
            Resident engine(*files, use);
            fill_cache(engine.cache, engine.forward->exec(), 30, 7, {});
            NodeId above = kCommittedTip;
            for (TokenId token = 0; token < 80; ++token) {
                above = engine.cache.add_node(above);
                const std::int32_t row = 0;
                const ConstTensorView found = engine.forward->run(engine.cache, {&token, 1}, {&above, 1}, {&row, 1});
                std::vector<float>& all = logits[use == GraphUse::Allowed ? 1 : 0];
                all.insert(all.end(), float_row(found, 0), float_row(found, 0) + found.cols());
            }
            if (use == GraphUse::Allowed) {
                EXPECT_EQ(engine.forward->graphs()->figures().captured, 2);
                EXPECT_EQ(engine.forward->graphs()->figures().launched, 78);
                EXPECT_TRUE(engine.said.empty());
            }
        }
        EXPECT_TRUE(same_bits(logits[0], logits[1]));
    }
}

TEST(PassGraphs, AreBoundedInNumber) {
    const auto files = make_tiny_model({.n_layers = 1, .head_dim = 64, .weight_type = DType::BF16});
    Resident engine(*files, GraphUse::Allowed);
    const auto run = [&](std::int64_t n) {
        std::vector<TokenId> tokens(static_cast<std::size_t>(n), 3);
        std::vector<NodeId> nodes;
        for (std::int64_t i = 0; i < n; ++i)
            nodes.push_back(engine.cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
        const auto row = static_cast<std::int32_t>(n - 1);
        static_cast<void>(engine.forward->run(engine.cache, tokens, nodes, {&row, 1}));
        engine.cache.forget();
    };
    const PassGraphFigures& figures = engine.forward->graphs()->figures();
    for (std::int64_t n = 1; n <= static_cast<std::int64_t>(kMostGraphs) + 6; ++n)
        for (int round = 0; round < 2; ++round) run(n);
    EXPECT_EQ(figures.captured, static_cast<std::int64_t>(kMostGraphs) + 6);
    EXPECT_EQ(figures.n_graphs, static_cast<std::int64_t>(kMostGraphs));
    EXPECT_EQ(engine.machine.n_graphs(), static_cast<std::int64_t>(kMostGraphs));
    run(static_cast<std::int64_t>(kMostGraphs));  // among the last: still there
    EXPECT_EQ(figures.captured, static_cast<std::int64_t>(kMostGraphs) + 6);
    // Sizes that come in turn, more than are kept, are not captured again and again.
    for (int round = 0; round < 3; ++round)
        for (std::int64_t n = 1; n <= static_cast<std::int64_t>(kMostGraphs) + 6; ++n) run(n);
    EXPECT_EQ(figures.captured, static_cast<std::int64_t>(kMostGraphs) + 6);
    run(1);
    run(1);  // long gone, and wanted again
    EXPECT_EQ(figures.captured, static_cast<std::int64_t>(kMostGraphs) + 7);
    run(kMostGraphTokens + 1);
    run(kMostGraphTokens + 1);
    EXPECT_EQ(figures.captured, static_cast<std::int64_t>(kMostGraphs) + 7);
}

TEST(PassGraphs, ADeviceThatRefusesThemIsAnnouncedOnceAndServes) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    NoProposer none;
    const Found expected = plain_text(*files, 10, 12, kSampled);
    Resident refused(*files, GraphUse::Allowed, Timing::Latest, true);
    EXPECT_EQ(refused.generate(prompt_of(12), 10, 12, kSampled, none), expected.text);
    EXPECT_TRUE(same_bits(refused.logits, expected.logits));
    ASSERT_EQ(refused.said.size(), 1U);
    EXPECT_THAT(refused.said[0], testing::AllOf(testing::HasSubstr("without graphs"), testing::HasSubstr("cuda:0"),
                                                testing::Not(testing::HasSubstr("\n"))));
    EXPECT_EQ(refused.machine.n_graph_launches(), 0);
}

TEST(PassGraphs, TheSelfCheckComparesThemWithPassesOpByOp) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::F16});
    Resident engine(*files, GraphUse::Allowed);
    DeviceSelfCheck check(engine.model, engine.cache);
    Sampler sampler(kSampled, engine.model.config().vocab);
    ExactVerifier verifier(sampler);
    NoProposer none;
    RankTarget target(*engine.forward, engine.cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, none, {.budget = kBudget, .end_tokens = {}});
    loop.check_with(check);
    loop.begin(prompt_of(30));
    for (std::int64_t left = 12; left > 0;) left -= std::ssize(loop.step(left));
    EXPECT_EQ(check.figures().tokens, 12);
    EXPECT_GE(engine.forward->graphs()->figures().launched, 9);
}

// A draft model's steps beside the target's passes: each level of a tree is a launch, logits are those of ops one by
// one, and the window slides meanwhile.
TEST(PassGraphs, ADraftModelsStepsHaveTheSameBits) {
    const auto files = make_tiny_model({.n_layers = 2, .head_dim = 64, .weight_type = DType::BF16});
    std::vector<float> logits[2];
    for (const GraphUse use : {GraphUse::Never, GraphUse::Allowed}) {
        Resident engine(*files, use);
        draft::DraftModel draft(engine.model, 97, kGreedy,
                                {.max_nodes = 12,
                                 .window = {.sinks = 4, .recent = 20, .slots = 48},
                                 .graphs = use,
                                 .rows = draft::DraftRows::Whole});
        std::vector<float>& found = logits[use == GraphUse::Allowed ? 1 : 0];
        std::vector<TokenId> text = prompt_of(10);
        TokenTree tree;
        for (int round = 0; round < 40; ++round) {
            tree.reset(text.back());
            for (std::int32_t level = 0; level < 4; ++level) {
                const TreeNode node(level);
                draft.expand(tree, text, {&node, 1});
                const std::span<const float> row = draft.logits(node);
                found.insert(found.end(), row.begin(), row.end());
                tree.add(node, static_cast<TokenId>((round * 5 + level) % 97));
            }
            text.push_back(static_cast<TokenId>(round * 5 % 97));
            text.push_back(static_cast<TokenId>((round * 5 + 1 + round % 2) % 97));
            draft.observe({.text = text, .n_new = 2});
        }
        EXPECT_GT(draft.window().n_dropped(), 0);
        if (use == GraphUse::Allowed) {
            EXPECT_GT(engine.machine.n_graph_launches(), 100);
        }
    }
    EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

}  // namespace
}  // namespace slipstream
