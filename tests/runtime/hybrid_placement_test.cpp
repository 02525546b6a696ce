// Models with delta nets: texts, logits and KV are those of the resident model on one device and of plain decoding,
// wherever weights and KV are, whatever trees are drafted, and after cuts, cancelled passes and failed verifications.
// What cannot be served is refused in one line.
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/cache/recurrent_states.h"
#include "runtime/model/weight_items.h"
#include "runtime/pass/delta_steps.h"
#include "runtime/plan/pass_items.h"
#include "tests/support/error_text.h"
#include "tests/support/expected_text.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kLayers = 4;  // delta net, delta net, attention, delta net

std::unique_ptr<ModelFiles> hybrid(DType type = DType::F32, std::int64_t n_experts = 0) {
    return make_tiny_model(
        {.n_layers = kLayers, .weight_type = type, .head_norms = true, .delta_nets = true, .n_experts = n_experts});
}

TEST(HybridPlacement, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    for (const auto& [type, n_experts] : {std::pair{DType::BF16, 0}, {DType::F32, 5}}) {
        const auto files = hybrid(type, n_experts);
        for (const std::int64_t n_prompt : {1, 3, 600}) {
            const std::int64_t n_tokens = n_prompt == 600 ? 30 : 100;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing, {{.n_threads = 2}});
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}, {2, 2}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                    SCOPED_TRACE(testing::PrintToString(split));
                    SplitEngine engine(*files, split, streams);
                    expect_text(engine, one, n_prompt, n_tokens);
                    EXPECT_EQ(kv_of(*engine.target), kv);
                }
            }
        }
    }
}

// In rings that hold the KV of a layer, and in those from which it is copied for each prefill chunk.
TEST(HybridPlacement, APromptByLayersGivesTheBitsOfTheResidentModel) {
    const auto files = hybrid(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(2300), 3);
    for (const std::size_t kib : {280, 320, 400, 2048}) {
        SplitEngine engine(*files, {kLayers}, Streams::Both, {}, kib << 10);
        EXPECT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 2048, kPrefillChunkTokens))
            << kib;
        const Generated found = plainly(*engine.target, prompt_of(2300), 3);
        EXPECT_EQ(found.text, one.text) << kib;
        EXPECT_TRUE(same_bits(found.logits, one.logits)) << kib;
        EXPECT_EQ(kv_of(*engine.target), kv_of(*whole.target)) << kib;
    }
}

// Passes over random trees below the committed tip, in one pass or level by level; each node's logits are those of its
// path alone.
TEST(HybridPlacement, LogitsOfRandomTreesAreThoseOfTheirPaths) {
    const auto files = hybrid();
    SplitEngine engine(*files, {kLayers}, Streams::Nothing);
    SplitEngine alone(*files, {kLayers}, Streams::Nothing);
    const std::vector<TokenId> prompt = prompt_of(7);
    std::mt19937 random(5);
    const auto feed = [](RankTarget& target, const std::vector<TokenId>& tokens) {
        std::vector<NodeId> nodes;
        NodeId above = kCommittedTip;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            nodes.push_back(above = target.add_node(above, NodeKind::Certain));
        static_cast<void>(target.run({.tokens = tokens, .nodes = nodes}));
        target.commit(nodes);
    };
    for (int round = 0; round < 60; ++round) {
        engine.target->truncate(0);
        feed(*engine.target, prompt);
        const bool by_level = round % 2 == 1;
        // Node 0 is certain; the others are drafts below it or below one another.
        const int n = std::uniform_int_distribution(2, 9)(random);
        std::vector<TokenId> tokens;
        std::vector<int> parents;
        for (int i = 0; i < n; ++i) {
            tokens.push_back(static_cast<TokenId>(random() % kTinyVocab));
            parents.push_back(i == 0 ? -1 : std::uniform_int_distribution(0, i - 1)(random));
        }
        std::vector<NodeId> nodes;
        std::vector<std::vector<float>> logits;
        const auto take = [&](const LogitRows& rows) {
            for (std::int64_t row = 0; row < rows.rows(); ++row)
                logits.emplace_back(rows.row(row).begin(), rows.row(row).end());
        };
        for (int i = 0; i < n; ++i) {
            nodes.push_back(i == 0 ? engine.target->add_node(kCommittedTip, NodeKind::Certain)
                                   : engine.target->add_node(nodes[parents[i]]));
            const std::int32_t row = 0;
            if (by_level)
                take(engine.target->run({.tokens = std::span(tokens).subspan(i, 1),
                                         .nodes = std::span(nodes).subspan(i, 1),
                                         .logit_tokens = {&row, 1}}));
        }
        if (!by_level) {
            std::vector<std::int32_t> rows(static_cast<std::size_t>(n));
            std::iota(rows.begin(), rows.end(), 0);
            take(engine.target->run({.tokens = tokens, .nodes = nodes, .logit_tokens = rows}));
        }
        for (int i = 0; i < n; ++i) {
            std::vector<TokenId> path;
            for (int at = i; at >= 0; at = parents[at]) path.insert(path.begin(), tokens[at]);
            alone.target->truncate(0);
            feed(*alone.target, prompt);
            for (std::size_t t = 0; t < path.size(); ++t) {
                const NodeId node = alone.target->add_node(kCommittedTip, NodeKind::Certain);
                const std::int32_t row = 0;
                const LogitRows found =
                    alone.target->run({.tokens = {&path[t], 1}, .nodes = {&node, 1}, .logit_tokens = {&row, 1}});
                if (t + 1 == path.size()) {
                    EXPECT_TRUE(same_bits({found.row(0).begin(), found.row(0).end()}, logits[i]))
                        << "round " << round << ", node " << i;
                }
                alone.target->commit({&node, 1});
            }
        }
        // A path is committed; the text goes on as if its tokens had been fed alone.
        std::vector<NodeId> path;
        std::vector<TokenId> text = prompt;
        for (int at = n - 1; at >= 0; at = parents[at]) {
            path.insert(path.begin(), nodes[at]);
            text.insert(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens[at]);
        }
        engine.target->commit(path);
        alone.target->truncate(0);
        feed(*alone.target, text);
        const TokenId next = 11;
        const std::int32_t row = 0;
        const auto logits_of = [&](RankTarget& target) {
            const NodeId node = target.add_node(kCommittedTip, NodeKind::Certain);
            const LogitRows found = target.run({.tokens = {&next, 1}, .nodes = {&node, 1}, .logit_tokens = {&row, 1}});
            return std::vector<float>(found.row(0).begin(), found.row(0).end());
        };
        EXPECT_TRUE(same_bits(logits_of(*engine.target), logits_of(*alone.target))) << "round " << round;
        alone.target->forget();
        engine.target->forget();
    }
}

// A text is cut, within what is pending and before it, and goes on with the same tokens.
TEST(HybridPlacement, ACutTextGoesOnWithTheSameBits) {
    const auto files = hybrid();
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        for (const std::int64_t n_prompt : {9, 1600}) {
            const std::int64_t n_text = n_prompt + 40;
            SplitEngine engine(*files, {1, 3}, streams);
            const std::vector<TokenId> text = plainly(*engine.target, prompt_of(n_prompt), 40).text;
            bool cut_to_a_checkpoint = false;
            std::set<std::int64_t> near_ends{n_prompt - 16};  // of the prompts so far
            for (const std::int64_t cut : {n_text - 2, n_text - 4, n_text - 20, n_prompt, n_prompt - 1, n_prompt / 2,
                                           std::int64_t{1}, std::int64_t{0}}) {
                const std::int64_t kept = engine.target->positions_after_cut(cut);
                EXPECT_TRUE(kept == cut || kept % kPrefillChunkTokens == 0 || near_ends.contains(kept)) << kept;
                if (cut < n_prompt && cut >= n_prompt - 16 && n_prompt > 16) {
                    EXPECT_GE(kept, n_prompt - 16);
                }
                cut_to_a_checkpoint = cut_to_a_checkpoint || (kept != cut && kept > 0);
                engine.target->truncate(cut);
                EXPECT_EQ(engine.target->n_committed(), kept);
                const std::vector<TokenId> prompt(text.begin(),
                                                  text.begin() + std::max<std::int64_t>(cut, n_prompt - 1) + 1);
                near_ends.insert(std::ssize(prompt) - 16);
                ScriptedProposer scripted(text, 0.8, 3);
                EXPECT_EQ(generate(*engine.target, prompt, n_text - std::ssize(prompt), scripted, 9).text, text) << cut;
            }
            EXPECT_TRUE(cut_to_a_checkpoint);
        }
    }
}

// Cancelled in each layer, of a prompt chunk by chunk, by layers, and of passes with trees; then the text goes on.
TEST(HybridPlacement, ACancelledPassLosesNothing) {
    const auto files = hybrid();
    for (const auto& [n_prompt, ring] : {std::pair{40, std::size_t{1} << 17}, {1100, std::size_t{2} << 20}}) {
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        const Generated one = plainly(*whole.target, prompt_of(n_prompt), 20);
        for (int stop_at = 1; stop_at < 40; stop_at += 3) {
            SplitEngine engine(*files, {kLayers}, stop_at % 2 == 1 ? Streams::Nothing : Streams::Both, {}, ring);
            Sequence sequence(*engine.target);
            Sampler sampler(kTinySampling, kTinyVocab);
            ExactVerifier verifier(sampler);
            ScriptedProposer scripted(one.text, 0.8, 3);
            GenerationLoop loop(sequence, verifier, scripted, {.budget = 9});
            loop.begin(prompt_of(n_prompt));
            std::atomic<bool> cancel = false;
            int steps = 0;
            const PromptProgress count = [&](std::int64_t, std::int64_t) {
                cancel = ++steps == stop_at || steps == 2 * stop_at + 3;
            };
            while (std::ssize(sequence.tokens()) < n_prompt + 20) {
                cancel = false;
                const std::int64_t before = sequence.n_computed();
                static_cast<void>(loop.step(n_prompt + 20 - std::ssize(sequence.tokens()), &cancel, count));
                EXPECT_GE(sequence.n_computed(), before);
            }
            EXPECT_EQ(sequence.tokens(), one.text) << "stopped at step " << stop_at;
        }
    }
}

// Passes with draft tokens go past multiples of 512 positions, and leave checkpoints there.
TEST(HybridPlacement, WhatWasDraftedHasCheckpoints) {
    const auto files = hybrid();
    for (const int n_prompt : {490, 505}) {
        SplitEngine engine(*files, {1, 3}, Streams::Nothing);
        const std::vector<TokenId> text = plainly(*engine.target, prompt_of(n_prompt), 60).text;
        engine.target->truncate(0);
        ScriptedProposer scripted(text, 0.8, 3);
        EXPECT_EQ(generate(*engine.target, prompt_of(n_prompt), 60, scripted, 9).text, text);
        for (const std::int64_t cut : {520, 512, 511}) {
            EXPECT_EQ(engine.target->positions_after_cut(cut), cut < 512 ? n_prompt - 16 : 512);
            engine.target->truncate(cut);
            const std::vector<TokenId> prompt(text.begin(), text.begin() + cut + 1);
            EXPECT_EQ(plainly(*engine.target, prompt, n_prompt + 60 - cut - 1).text, text) << cut;
        }
    }
}

// A pass may fill a checkpoint, and then its tokens are not committed, but others.
TEST(RecurrentStates, ACheckpointOfTokensThatWereNotCommittedIsDropped) {
    const auto files = hybrid();
    const std::vector<KvLayout> layouts = files->config().kv_layouts(DType::F16);
    CpuDevice device({});
    const auto stream = device.make_stream(StreamKind::Compute);
    RecurrentStates states(device, layouts, 4, std::size_t{1} << 20);
    const auto pass = [&](std::int64_t end) {
        for (const std::int64_t layer : {0, 1, 3}) {
            states.make_checkpoint({device, *stream}, layer, 512, states.next_state(layer));
            states.set_next(layer, end);
        }
    };
    pass(600);
    states.commit({device, *stream}, 600, {});
    EXPECT_EQ(states.positions_after_cut(599), 512);
    states.reset();
    pass(600);
    states.drop_next();
    for (const std::int64_t layer : {0, 1, 3}) states.set_next(layer, 700);
    states.commit({device, *stream}, 700, {});
    EXPECT_EQ(states.positions_after_cut(699), 0);
}

// Checkpoints are spread over the text, and the newest is kept.
TEST(RecurrentStates, CheckpointsThatHaveNoRoomReplaceTheClosest) {
    const auto files = hybrid();
    const std::vector<KvLayout> layouts = files->config().kv_layouts(DType::F16);
    CpuDevice device({});
    const auto stream = device.make_stream(StreamKind::Compute);
    const std::size_t one = RecurrentStates::state_bytes(layouts);
    EXPECT_EQ(RecurrentStates::most_checkpoint_bytes(layouts, 5 * 512 + 3, std::size_t{1} << 30), 9 * one);
    for (const std::size_t n : {0, 1, 2, 5}) {
        EXPECT_EQ(RecurrentStates::most_checkpoint_bytes(layouts, 100'000, n * one + 1), n * one);
        RecurrentStates states(device, layouts, 4, n * one + 1);
        for (std::int64_t position = 512; position <= 20 * 512; position += 512) {
            for (const std::int64_t layer : {0, 1, 3}) {
                const RecurrentStates::State next = states.next_state(layer);
                *next.state = static_cast<float>(position + layer);
                states.make_checkpoint({device, *stream}, layer, position, next);
                states.set_next(layer, position + 1);
            }
            states.commit({device, *stream}, position + 1, {});
        }
        std::vector<std::int64_t> kept;
        for (std::int64_t cut = 20 * 512; cut > 0; cut -= 512)
            if (states.positions_after_cut(cut) == cut) kept.push_back(cut);
        EXPECT_EQ(kept.size(), n);
        if (n == 0) continue;
        EXPECT_EQ(kept.front(), 20 * 512);
        states.cut(kept.back());
        states.bring_back({device, *stream});
        EXPECT_EQ(states.kept(), kept.back());
        EXPECT_EQ(*states.kept_state(3).state, static_cast<float>(kept.back() + 3));
        EXPECT_EQ(states.positions_after_cut(kept.back() - 1), 0);
    }
}

// Random trees over one or several passes: each step finds the state of its parent in `from`, no step overwrites a
// state that a later one reads, and there are no more working states than announced.
TEST(DeltaSteps, EachStepFindsTheStateOfItsParent) {
    const auto files = hybrid();
    CpuDevice device({});
    KvCache cache(device, files->config().kv_layouts(DType::F16), 600, 60);
    DeltaSteps steps(DeltaSteps::most(60, 60));
    std::mt19937 random(8);
    for (int round = 0; round < 400; ++round) {
        cache.forget();
        const int n = std::uniform_int_distribution(1, 60)(random);
        const int shape = round % 4;  // any parent, a star, a comb, a chain
        const bool has_certain = round % 3 != 0;
        std::vector<NodeId> nodes;
        for (int i = 0; i < n; ++i) {
            const int parent = shape == 0   ? std::uniform_int_distribution(0, std::max(i - 1, 0))(random)
                               : shape == 1 ? 0
                               : shape == 2 ? std::max(i - 1 - i % 2, 0)
                                            : i - 1;
            nodes.push_back(i == 0 ? cache.add_node(kCommittedTip, has_certain ? NodeKind::Certain : NodeKind::Draft)
                                   : cache.add_node(nodes[parent]));
        }
        // All nodes in one pass, or the last ones after a pass over the others.
        const auto first = static_cast<std::size_t>(
            !has_certain && n > 1 && round % 2 == 0 ? std::uniform_int_distribution(1, n - 1)(random) : 0);
        const std::span<const NodeId> pass = std::span(nodes).subspan(first);
        steps.trace(cache, pass);
        ASSERT_EQ(steps.parts().size(), 1U);
        const DeltaSteps::Part& part = steps.parts().front();
        EXPECT_LE(part.n_working, working_states(std::ssize(part.steps)));
        EXPECT_EQ(part.n_kept, has_certain ? 1 : 0);
        std::vector<std::int32_t> states(static_cast<std::size_t>(part.n_working),
                                         -2);  // the step after which each is
        states[0] = -1;
        std::vector<int> visits(pass.size());
        for (std::int32_t i = 0; i < std::ssize(part.steps); ++i) {
            const DeltaStep& step = part.steps[i];
            ASSERT_EQ(states[step.from], step.parent) << "round " << round << ", step " << i;
            states[step.to] = i;
            if (step.row >= 0) ++visits[step.row];
        }
        EXPECT_THAT(visits, testing::Each(1));
    }
}

TEST(HybridPlacement, WhatIsNotServedIsRefusedByName) {
    const auto files = hybrid();
    check_kernels(files->weights(), DeviceKind::Cpu);
    check_kernels(files->weights(), DeviceKind::Cuda);
    const std::vector<double> shares{1.0, 1.0};
    EXPECT_EQ(error_text<Unsupported>([&] {
                  static_cast<void>(parts_by_share(SplitKind::Tensor, files->config(), files->weights(), shares));
              }),
              "the matrices of a model with recurrent layers cannot be shared among devices; split the model by layers "
              "(--split layers)");
}

// The memory of caches is what is announced.
TEST(HybridPlacement, DeviceMemoryIsThatOfThePlan) {
    const auto files = hybrid();
    CpuDevice device({});
    const std::size_t before = device.budget().used_bytes();
    const KvCache cache(device, files->config().kv_layouts(DType::F16), 600, 20, {.max_drafts = 7});
    EXPECT_EQ(device.budget().used_bytes() - before,
              KvCache::device_bytes(files->config().kv_layouts(DType::F16), 600, 20, {}, {}, 7));
}

}  // namespace
}  // namespace slipstream
