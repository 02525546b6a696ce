// Layers shared out over several devices give the bits of one device: texts, logits and KV, for every split and
// placement, with guesses, cuts, cancelled and failed passes, and texts that are gone on with on another split.
#include "runtime/ranks/rank_target.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/self_check.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/error_text.h"
#include "tests/support/layers.h"
#include "tests/support/named_faults.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = SplitEngine::kContext;
constexpr std::int64_t kBudget = SplitEngine::kBudget;

class LayersTargetTest : public testing::Test {
protected:
    Generated on_one_device(std::int64_t n_prompt, std::int64_t n_tokens) {
        SplitEngine whole(*files_, {6}, Streams::Nothing);
        RankTarget& target = *whole.target;
        Generated plain = plainly(target, prompt_of(n_prompt), n_tokens);
        kv_ = kv_of(target);
        return plain;
    }

    std::unique_ptr<ModelFiles> files_ =
        make_tiny_model({.n_layers = 6, .window = 300, .weight_type = DType::BF16, .biases = true, .head_norms = true});
    std::vector<std::byte> kv_;  // of what on_one_device() generated last
    const std::vector<std::vector<std::int64_t>> splits_{{3, 3}, {4, 2}, {1, 5}, {2, 2, 2}, {3, 2, 1}, {1, 1, 4}};
};

TEST_F(LayersTargetTest, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    for (const std::int64_t n_prompt : {3, 700}) {
        const std::int64_t n_tokens = n_prompt == 3 ? 30 : 80;
        const Generated one = on_one_device(n_prompt, n_tokens);
        for (const auto& split : splits_) {
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                // A long prompt where most is at stake.
                if (n_prompt == 700 && (split.size() == 2 || streams != Streams::Both)) continue;
                SplitEngine engine(*files_, split, streams);
                for (const std::int64_t budget : {1, 9}) {
                    engine.target->truncate(0);
                    NoProposer nothing;
                    ScriptedProposer scripted(one.text, 0.7, 3);
                    Proposer& proposer = budget > 1 ? static_cast<Proposer&>(scripted) : nothing;
                    const Generated several = generate(*engine.target, prompt_of(n_prompt), n_tokens, proposer, budget,
                                                       budget > 1 ? engine.plain : nullptr);
                    EXPECT_EQ(several.text, one.text) << n_prompt << " " << testing::PrintToString(split);
                    EXPECT_TRUE(same_bits(several.logits, one.logits)) << static_cast<int>(streams);
                }
                EXPECT_EQ(kv_of(*engine.target), kv_);
            }
        }
    }
}

// A conversation: cut back, gone on with otherwise, as on one device.
TEST_F(LayersTargetTest, ATextMayBeCutBackAnywhere) {
    std::mt19937 random(5);
    for (const Streams streams : {Streams::Weights, Streams::Both}) {
        SplitEngine whole(*files_, {6}, Streams::Nothing);
        RankTarget& one = *whole.target;
        SplitEngine several(*files_, {3, 2, 1}, streams);
        std::vector<TokenId> text;
        for (int turn = 0; turn < 5; ++turn) {
            const auto kept =
                static_cast<std::int64_t>(random() % (std::min(one.n_committed(), std::ssize(text)) + 1U));
            text.resize(static_cast<std::size_t>(kept));
            for (const TokenId token : prompt_of(1 + static_cast<std::int64_t>(random() % 150))) text.push_back(token);
            if (std::ssize(text) > kContext - 200) break;
            NoProposer nothing;
            one.truncate(kept);
            const Generated expected = generate(one, text, 20, nothing, 1);
            several.target->truncate(kept);
            ScriptedProposer proposer(expected.text, 0.6, 7);
            const Generated found = generate(*several.target, text, 20, proposer, kBudget);
            ASSERT_EQ(found.text, expected.text) << "turn " << turn;
            ASSERT_TRUE(same_bits(found.logits, expected.logits)) << "turn " << turn;
            text = found.text;
        }
    }
}

// A session in whole-model form.
TEST_F(LayersTargetTest, ATextGoesOnOnAnotherSplit) {
    const Generated whole = on_one_device(600, 160);
    SplitEngine first(*files_, {2, 4}, Streams::Both);
    NoProposer nothing;
    const Generated begun = generate(*first.target, prompt_of(600), 80, nothing, 1);
    const std::int64_t n_chunks = first.target->n_committed() / kChunkTokens;
    for (const auto& split : splits_) {
        SplitEngine second(*files_, split, Streams::Kv);
        const auto read = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            first.target->read_chunk(layer, chunk, out);
        };
        second.target->restore(0, kChunkTokens, read);
        const auto fail = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            read(layer, chunk, out);
            if (layer == 3) throw FormatError("a damaged block");
        };
        EXPECT_THROW(second.target->restore(kChunkTokens, n_chunks * kChunkTokens, fail), FormatError);
        EXPECT_EQ(second.target->n_committed(), kChunkTokens);
        second.target->restore(kChunkTokens, n_chunks * kChunkTokens, read);
        EXPECT_EQ(second.target->n_committed(), n_chunks * kChunkTokens);
        EXPECT_EQ(generate(*second.target, begun.text, 80, nothing, 1).text, whole.text);
    }
}

TEST_F(LayersTargetTest, ARestoreThatFailsLeavesNothing) {
    SplitEngine engine(*files_, {3, 3}, Streams::Kv);
    int n_read = 0;
    EXPECT_THROW(engine.target->restore(0, 2 * kChunkTokens,
                                        [&](std::int64_t, std::int64_t, std::byte*) {
                                            if (++n_read == 9) throw FormatError("a damaged block");
                                        }),
                 FormatError);
    EXPECT_EQ(engine.target->n_committed(), 0);
    const Generated one = on_one_device(3, 40);
    NoProposer nothing;
    EXPECT_EQ(generate(*engine.target, prompt_of(3), 40, nothing, 1).text, one.text);
}

// Ctrl-C between any two layers: no state has changed.
TEST_F(LayersTargetTest, APassThatIsGivenUpAtAnyLayerLeavesNoTrace) {
    const Generated one = on_one_device(40, 60);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        SplitEngine engine(*files_, {3, 2, 1}, streams);
        Sampler sampler(kTinySampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        Sequence sequence(*engine.target);
        GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(40));
        std::mt19937 random(11);
        while (std::ssize(loop.text()) < 100) {
            std::atomic<bool> cancel{false};
            const auto node = engine.target->add_node(kCommittedTip);
            const auto layer = static_cast<double>(random() % 5) / 6.0;
            if (engine.target->n_committed() > 0) {
                const PassControl control{.cancel = &cancel,
                                          .on_progress = [&](double done) { cancel = done >= layer; }};
                const std::vector<TokenId> token{5};
                const std::vector<NodeId> nodes{node};
                const std::vector<std::int32_t> rows{0};
                EXPECT_TRUE(
                    engine.target->run({.tokens = token, .nodes = nodes, .logit_tokens = rows, .control = &control})
                        .empty());
            }
            engine.target->forget();
            ASSERT_FALSE(loop.step(1).empty());
        }
        EXPECT_EQ(loop.text(), one.text);
    }
}

// A copy fails on some device at some time: the pass says where, and the next one is right.
TEST_F(LayersTargetTest, ACopyThatFailsOnOneDeviceIsNamedAndLeavesNoTrace) {
    const Generated one = on_one_device(40, 30);
    std::mt19937 random(17);
    int n_failures = 0;
    for (int round = 0; round < 15; ++round) {
        CpuFaults faults[3];
        SplitEngine engine(*files_, {2, 2, 2}, Streams::Weights,
                           {{.name = "device 1", .faults = &faults[0]},
                            {.name = "device 2", .faults = &faults[1]},
                            {.name = "device 3", .faults = &faults[2]}});
        Sampler sampler(kTinySampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        Sequence sequence(*engine.target);
        GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(40));
        const std::size_t rank = random() % 3;
        faults[rank].copies_until_failure = 1 + random() % 200;
        while (std::ssize(loop.text()) < 70) {
            try {
                ASSERT_FALSE(loop.step(1).empty());
            } catch (const RankFailed& failure) {
                ++n_failures;
                EXPECT_THAT(failure.what(), testing::StartsWith("device " + std::to_string(rank + 1) + ", "));
                EXPECT_THAT(failure.what(),
                            testing::AnyOf(testing::HasSubstr(", layer "), testing::HasSubstr(", the LM head: ")));
            }
        }
        ASSERT_EQ(loop.text(), one.text) << "round " << round;
    }
    EXPECT_GT(n_failures, 4);
}

// What stands still, or fails, is told in one line: device, layer and kind; then text and logits are as if it had not.
TEST_F(LayersTargetTest, EveryKindOfFailureIsNamedAndThePassAfterItIsRight) {
    const Generated one = on_one_device(250, 30);
    expect_named<SplitEngine>(
        *files_, {3, 3}, one,
        {{&CpuFaults::copies_until_stall, 3, Streams::Weights,
          "^device 2, (layer [135]|the LM head): weights: device 2, copies in: a copy of .* made no progress"},
         {&CpuFaults::copies_until_stall, 1, Streams::Kv,
          "^device 2, (layer [135]: )?KV: device 2, copies out: a copy of .* made no progress"},
         {&CpuFaults::copies_until_failure, 3, Streams::Weights, "^device 2, .*: weights: device 2, copies in"},
         {&CpuFaults::rows_until_failure, 3, Streams::Nothing, "^device 2, layer [135]: rows: device 2: a copy"},
         {&CpuFaults::ops_until_failure, 30, Streams::Nothing,
          "^device 2, (layer [0135]|the LM head): device 2: a kernel"}});
}

TEST(LayerSplit, LayersGoInTurnByShare) {
    ModelConfig config;
    set_layers(config, {.n_layers = 6, .d_ff = 64, .n_q_heads = 2, .n_kv_heads = 2, .head_dim = 8});
    config.vocab = 97;
    const std::vector<ModelShard> shards = deal_layers(config, std::vector<std::int64_t>{4, 2});
    EXPECT_THAT(shards[0].layers, testing::ElementsAre(0, 1, 3, 4));
    EXPECT_THAT(shards[1].layers, testing::ElementsAre(2, 5));
    EXPECT_EQ(shards[0].first_vocab, 0);
    EXPECT_EQ(shards[0].n_vocab, 64);
    EXPECT_EQ(shards[1].first_vocab, 64);
    EXPECT_EQ(shards[1].n_vocab, 33);
}

TEST(LayerSplit, EveryLayerAndRowHasOneOwner) {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        ModelConfig config;
        std::vector<std::int64_t> n_layers;
        for (unsigned rank = 0; rank <= random() % 5; ++rank) n_layers.push_back(1 + random() % 40);
        const std::int64_t n_all = std::accumulate(n_layers.begin(), n_layers.end(), std::int64_t{0});
        set_layers(config, {.n_layers = n_all, .d_ff = 16, .n_q_heads = 1, .n_kv_heads = 1, .head_dim = 8});
        config.vocab = 16 * std::ssize(n_layers) + random() % 3000;
        const std::vector<ModelShard> shards = deal_layers(config, n_layers);
        std::vector<int> owners(static_cast<std::size_t>(config.n_layers()), 0);
        std::int64_t row = 0;
        for (std::size_t rank = 0; rank < shards.size(); ++rank) {
            EXPECT_EQ(std::ssize(shards[rank].layers), n_layers[rank]);
            EXPECT_TRUE(std::ranges::is_sorted(shards[rank].layers));
            for (const std::int64_t layer : shards[rank].layers) ++owners.at(static_cast<std::size_t>(layer));
            EXPECT_EQ(shards[rank].first_vocab, row);
            EXPECT_EQ(row % 16, 0);
            EXPECT_GE(shards[rank].n_vocab, 1);
            row += shards[rank].n_vocab;
        }
        EXPECT_EQ(row, config.vocab);
        EXPECT_THAT(owners, testing::Each(1));
    }
}

TEST(LayerSplit, SharesBecomeWholeLayers) {
    EXPECT_THAT(layers_by_share(28, std::vector<double>{2, 1}), testing::ElementsAre(19, 9));
    EXPECT_THAT(layers_by_share(7, std::vector<double>{1, 1, 1}), testing::ElementsAre(3, 2, 2));
    EXPECT_THAT(error_text<Unsupported>([] {
                    static_cast<void>(layers_by_share(24, std::vector<double>{30, 1}));
                }),
                testing::HasSubstr("less than one layer, for device 2 of 2"));
    EXPECT_THROW(static_cast<void>(layers_by_share(2, std::vector<double>{1, 1, 1})), Unsupported);
}

}  // namespace
}  // namespace slipstream
