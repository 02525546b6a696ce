// Models with delta nets on emulated cards: one text and one set of bits wherever weights and KV are, however layers
// are shared out, whatever trees are drafted, and after cuts and cancelled passes; logits near the CPU's. The machine
// refuses hosts that touch states on a card.
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "runner_on_cards.h"
#include "runtime/cache/recurrent_states.h"
#include "runtime/loop/sequence.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;

constexpr std::int64_t kLayers = 4;  // delta net, delta net, attention, delta net

std::unique_ptr<ModelFiles> hybrid(DType type) {
    return make_tiny_model(
        {.n_layers = kLayers, .head_dim = 64, .weight_type = type, .head_norms = true, .delta_nets = true});
}

enum class Devices : std::uint8_t { Cpu, Card, TwoCards, CardAndCpu };

/// A runner over devices, with a context of 1600 positions.
struct Engine {
    Engine(const ModelFiles& files, Devices which, Streams streams, Timing timing = Timing::Latest)
        : machine({.n_cards = 2, .timing = timing}) {
        for (std::int32_t card = 0; card < (which == Devices::TwoCards ? 2 : which == Devices::Cpu ? 0 : 1); ++card)
            devices.push_back(emulation::small_card(machine, card));
        if (which == Devices::Cpu || which == Devices::CardAndCpu)
            devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1}));
        arena = std::make_unique<PinnedArena>(
            PinnedArenaOptions{.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
        std::vector<ModelShard> shards{whole_shard(files.config())};
        if (devices.size() == 2) shards = deal_layers(files.config(), std::vector<std::int64_t>{1, 3});
        std::vector<Device*> pointers;
        for (const auto& device : devices) pointers.push_back(device.get());
        on_cards =
            std::make_unique<RunnerOnCards>(files, pointers, shards, *arena, streams, nullptr, std::nullopt, 1600);
    }
    [[nodiscard]] RankTarget& target() { return on_cards->runner->target(); }

    Machine machine;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<PinnedArena> arena;
    std::unique_ptr<RunnerOnCards> on_cards;
};

Generated generate(const ModelFiles& files, Devices which, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}, std::int64_t n_prompt = 260, std::int64_t n_tokens = 20) {
    Engine engine(files, which, streams, timing);
    return emulation::generate_on(engine.target(), future, n_prompt, n_tokens);
}

class HybridOnCards : public testing::TestWithParam<Timing> {};

TEST_P(HybridOnCards, EveryPlacementAndSplitGivesTheBitsOfOneCard) {
    for (const DType type : {DType::BF16, DType::Q8_0}) {
        const auto files = hybrid(type);
        const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        for (const Devices devices : {Devices::Card, Devices::TwoCards})
            for (const Streams streams : {Streams::Nothing, Streams::Kv, Streams::Both}) {
                EXPECT_EQ(generate(*files, devices, streams, GetParam()), one);
                EXPECT_EQ(generate(*files, devices, streams, GetParam(), one.text), one);
            }
    }
}

TEST_P(HybridOnCards, ACardBesideTheCpuGivesOneText) {
    const auto files = hybrid(DType::BF16);
    const Generated plain = generate(*files, Devices::CardAndCpu, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*files, Devices::CardAndCpu, Streams::Both, GetParam()), plain);
    EXPECT_EQ(generate(*files, Devices::CardAndCpu, Streams::Both, GetParam(), plain.text), plain);
}

// Chunk by chunk, and layer by layer where weights or KV stream.
TEST_P(HybridOnCards, LongPromptsGiveTheSameBits) {
    const auto files = hybrid(DType::BF16);
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, 1100, 3);
    for (const Devices devices : {Devices::Card, Devices::TwoCards})
        EXPECT_EQ(generate(*files, devices, Streams::Both, GetParam(), one.text, 1100, 3), one);
}

// A text is cut, within what is pending and to checkpoints, and goes on with the same tokens.
TEST_P(HybridOnCards, ACutTextGoesOnWithTheSameBits) {
    const auto files = hybrid(DType::BF16);
    constexpr std::int64_t kPrompt = 1100;
    constexpr std::int64_t kText = kPrompt + 20;
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, kPrompt, 20);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        Engine engine(*files, Devices::TwoCards, streams, GetParam());
        RankTarget& target = engine.target();
        EXPECT_EQ(emulation::generate_on(target, one.text, kPrompt, 20), one);
        bool cut_to_a_checkpoint = false;
        std::set<std::int64_t> near_ends{kPrompt - 16};  // of the prompts so far
        for (const std::int64_t cut :
             {kText - 2, kText - 3, kText - 11, kPrompt - 1, std::int64_t{700}, std::int64_t{0}}) {
            const std::int64_t kept = target.positions_after_cut(cut);
            EXPECT_TRUE(kept == cut || kept % kPrefillChunkTokens == 0 || near_ends.contains(kept)) << kept;
            cut_to_a_checkpoint = cut_to_a_checkpoint || (kept != cut && kept > 0);
            // Cut twice at once: no pass has read the states in between.
            if (cut == 700) target.truncate(1060);
            target.truncate(cut);
            const std::int64_t n_prompt = std::max(cut, kPrompt - 1) + 1;
            near_ends.insert(n_prompt - 16);
            const std::vector<TokenId> prompt(one.text.begin(), one.text.begin() + n_prompt);
            ScriptedProposer scripted(one.text, 0.8, 3);
            EXPECT_EQ(logged_generation(target, prompt, kText - n_prompt, scripted, emulation::kBudget,
                                        {.temperature = 0.8, .seed = 3}, kTinyVocab)
                          .text,
                      one.text)
                << cut;
        }
        EXPECT_TRUE(cut_to_a_checkpoint);
    }
}

// After a cut the next pass reads the state of the checkpoint. The logits of the first tokens after the checkpoint are
// compared, since a wrong state has no effect on this model some 75 tokens later: it decays.
TEST_P(HybridOnCards, AStateComesBackFromItsCheckpoint) {
    const auto files = hybrid(DType::BF16);
    const std::vector<TokenId> longer = prompt_of(1100);
    const std::vector<TokenId> prompt(longer.begin(), longer.begin() + 1026);
    const auto go_on = [&](Engine& engine) {
        NoProposer nothing;
        return logged_generation(engine.target(), prompt, 3, nothing, 1, {.temperature = 0.8, .seed = 3}, kTinyVocab);
    };
    const Generated expected = [&] {
        Engine fresh(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        return go_on(fresh);
    }();
    Engine engine(*files, Devices::TwoCards, Streams::Nothing, GetParam());
    static_cast<void>(emulation::generate_on(engine.target(), {}, 1100, 1));
    engine.target().truncate(1060);
    EXPECT_EQ(engine.target().n_committed(), 1024);
    EXPECT_EQ(go_on(engine), expected);
}

// The states of a checkpoint and the KV before it are read on one target and restored on another, which goes on with
// the same bits.
TEST_P(HybridOnCards, AnotherTargetGoesOnAfterTheStatesOfACheckpoint) {
    const auto files = hybrid(DType::BF16);
    constexpr std::int64_t kPrompt = 1100;
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, kPrompt, 20);
    constexpr std::int64_t kPosition = 1024;
    std::vector<std::vector<std::byte>> states(kLayers);
    std::vector<std::vector<std::byte>> chunks(kLayers);  // one after the other
    {
        Engine from(*files, Devices::Card, Streams::Nothing, GetParam());
        RankTarget& target = from.target();
        EXPECT_EQ(emulation::generate_on(target, one.text, kPrompt, 20), one);
        ASSERT_EQ(target.last_state(kPrompt, kPrefillChunkTokens), kPosition);
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
            const KvLayout& layout = target.shape().kv[layer];
            states[layer].resize(RecurrentStates::state_bytes({&layout, 1}));
            if (!states[layer].empty()) target.read_state(layer, kPosition, states[layer].data());
            const std::size_t bytes = layout.chunk_bytes();
            chunks[layer].resize(kPosition / kChunkTokens * bytes);
            for (std::int64_t chunk = 0; chunk < kPosition / kChunkTokens; ++chunk)
                target.read_chunk(layer, chunk, chunks[layer].data() + chunk * bytes);
        }
    }
    for (const auto& [devices, streams] : {std::pair(Devices::Card, Streams::Both),
                                           {Devices::TwoCards, Streams::Nothing},
                                           {Devices::TwoCards, Streams::Both}}) {
        Engine to(*files, devices, streams, GetParam());
        RankTarget& target = to.target();
        target.restore_states(kPosition,
                              [&](std::int64_t layer, std::byte* out) { std::ranges::copy(states[layer], out); });
        target.restore(0, kPosition, [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            const std::size_t bytes = target.shape().kv[layer].chunk_bytes();
            std::copy_n(chunks[layer].data() + chunk * bytes, bytes, out);
        });
        EXPECT_EQ(target.n_committed(), kPosition);
        EXPECT_EQ(emulation::generate_on(target, one.text, kPrompt, 20), one);
        EXPECT_EQ(target.last_state(kPrompt, kPrefillChunkTokens), kPosition);
    }
}

// Cancelled in each layer, of prompts and of passes with trees; then the text goes on.
TEST_P(HybridOnCards, ACancelledPassLosesNothing) {
    const auto files = hybrid(DType::BF16);
    constexpr std::int64_t kPrompt = 600;
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, kPrompt, 12);
    for (int stop_at = 1; stop_at < 24; stop_at += 5) {
        Engine engine(*files, Devices::Card, stop_at % 2 == 1 ? Streams::Nothing : Streams::Both, GetParam());
        Sequence sequence(engine.target());
        Sampler sampler({.temperature = 0.8, .seed = 3}, kTinyVocab);
        ExactVerifier verifier(sampler);
        ScriptedProposer scripted(one.text, 0.8, 3);
        GenerationLoop loop(sequence, verifier, scripted, {.budget = emulation::kBudget});
        loop.begin(prompt_of(kPrompt));
        std::atomic<bool> cancel = false;
        int steps = 0;
        const PromptProgress count = [&](std::int64_t, std::int64_t) {
            cancel = ++steps == stop_at || steps == 2 * stop_at + 3;
        };
        while (std::ssize(sequence.tokens()) < kPrompt + 12) {
            cancel = false;
            static_cast<void>(loop.step(kPrompt + 12 - std::ssize(sequence.tokens()), &cancel, count));
        }
        EXPECT_EQ(sequence.tokens(), one.text) << "stopped at step " << stop_at;
    }
}

INSTANTIATE_TEST_SUITE_P(Timings, HybridOnCards, testing::ValuesIn(kTimings));

// The logits of a node of a random tree are those of its path alone, in one pass or level by level.
TEST(HybridTrees, ANodeHasTheLogitsOfItsPath) {
    const auto files = hybrid(DType::BF16);
    Engine engine(*files, Devices::Card, Streams::Nothing);
    RankTarget& target = engine.target();
    const std::vector<TokenId> prompt = prompt_of(7);
    std::mt19937 random(5);
    const std::int32_t first_row = 0;
    const auto feed = [&](const std::vector<TokenId>& tokens) {  // returns the logits of the last token
        std::vector<NodeId> nodes;
        std::vector<float> last;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const NodeId node = target.add_node(kCommittedTip, NodeKind::Certain);
            const LogitRows rows =
                target.run({.tokens = {&tokens[i], 1}, .nodes = {&node, 1}, .logit_tokens = {&first_row, 1}});
            last.assign(rows.row(0).begin(), rows.row(0).end());
            target.commit({&node, 1});
        }
        return last;
    };
    for (int round = 0; round < 8; ++round) {
        target.truncate(0);
        feed(prompt);
        const int n = std::uniform_int_distribution(2, static_cast<int>(emulation::kBudget))(random);
        std::vector<TokenId> tokens;
        std::vector<int> parents;
        std::vector<NodeId> nodes;
        for (int i = 0; i < n; ++i) {
            tokens.push_back(static_cast<TokenId>(random() % kTinyVocab));
            parents.push_back(i == 0 ? -1 : std::uniform_int_distribution(0, i - 1)(random));
        }
        std::vector<std::vector<float>> logits;
        const auto take = [&](const LogitRows& rows) {
            for (std::int64_t row = 0; row < rows.rows(); ++row)
                logits.emplace_back(rows.row(row).begin(), rows.row(row).end());
        };
        const bool by_level = round % 2 == 1;
        for (int i = 0; i < n; ++i) {
            nodes.push_back(i == 0 ? target.add_node(kCommittedTip, NodeKind::Certain)
                                   : target.add_node(nodes[parents[i]]));
            if (by_level)
                take(target.run({.tokens = std::span(tokens).subspan(static_cast<std::size_t>(i), 1),
                                 .nodes = std::span(nodes).subspan(static_cast<std::size_t>(i), 1),
                                 .logit_tokens = {&first_row, 1}}));
        }
        if (!by_level) {
            std::vector<std::int32_t> rows(static_cast<std::size_t>(n));
            std::iota(rows.begin(), rows.end(), 0);
            take(target.run({.tokens = tokens, .nodes = nodes, .logit_tokens = rows}));
        }
        target.forget();
        for (int i = 0; i < n; ++i) {
            std::vector<TokenId> text;
            for (int at = i; at >= 0; at = parents[at]) text.insert(text.begin(), tokens[at]);
            text.insert(text.begin(), prompt.begin(), prompt.end());
            target.truncate(0);
            EXPECT_TRUE(same_bits(feed(text), logits[i])) << "round " << round << ", node " << i;
        }
    }
}

// Activations are rounded to bfloat16 for matmuls of BF16 models, and to halves that make up about TF32 in F32 models.
TEST(HybridLogits, AreNearThoseOfTheCpu) {
    for (const DType type : {DType::F32, DType::BF16}) {
        const auto files = hybrid(type);
        const Generated card = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, 70, 1);
        const Generated cpu = generate(*files, Devices::Cpu, Streams::Nothing, Timing::AtOnce, {}, 70, 1);
        double error = 0.0;
        double size = 0.0;
        ASSERT_EQ(card.logits.size(), cpu.logits.size());
        for (std::size_t i = 0; i < cpu.logits.size(); ++i) {
            error += std::pow(double{card.logits[i]} - double{cpu.logits[i]}, 2);
            size += std::pow(double{cpu.logits[i]}, 2);
        }
        EXPECT_LT(error / size, type == DType::F32 ? 1e-5 : 1e-3) << dtype_name(type);
        EXPECT_GT(error, 0.0);
    }
}

// No copy of a checkpoint makes the host wait: their memory is page-locked.
TEST(HybridStates, CheckpointsOnACardAreCopiedWithoutAWait) {
    const auto files = hybrid(DType::BF16);
    Machine machine({.timing = Timing::Latest});
    const auto card = emulation::small_card(machine, 0);
    const auto stream = card->make_stream(StreamKind::Compute);
    const std::vector<KvLayout> layouts = files->config().kv_layouts(DType::F16);
    const std::size_t one = RecurrentStates::state_bytes(layouts);
    RecurrentStates states(*card, layouts, 4, 2 * one);
    const auto copies = card->make_stream(StreamKind::CopyOut);  // the machine counts slow copies of copy streams
    const auto fill = [&](std::int64_t layer, float value) {
        const DeltaNetShape& shape = layouts[layer].state;
        const std::vector<float> values(static_cast<std::size_t>(shape.state_floats()), value);
        stream->copy(states.next_state(layer).state, values.data(), values.size() * sizeof(float));
        stream->synchronize();
    };
    const auto kept_value = [&](std::int64_t layer) {
        float value = 0.0F;
        stream->copy(&value, states.kept_state(layer).state, sizeof(float));
        stream->synchronize();
        return value;
    };
    const auto advance = [&](std::int64_t position) {
        for (const std::int64_t layer : {0, 1, 3}) {
            fill(layer, static_cast<float>(position + layer));
            states.set_next(layer, position);
        }
        states.commit({*card, *stream}, position, {});
    };
    EXPECT_EQ(kept_value(3), 0.0F);
    for (std::int64_t position = 512; position <= 5 * 512; position += 512) {
        advance(position);
        for (const std::int64_t layer : {0, 1, 3})
            states.make_checkpoint({*card, *copies}, layer, position, states.kept_state(layer));
        copies->synchronize();
    }
    EXPECT_EQ(machine.n_pageable_copies(), 0);
    float pageable = 0.0F;
    copies->copy(&pageable, states.kept_state(0).state, sizeof(float));
    copies->synchronize();
    EXPECT_EQ(machine.n_pageable_copies(), 1);
    ASSERT_EQ(states.positions_after_cut(5 * 512 - 1), 4 * 512);
    advance(6 * 512);
    states.cut(5 * 512);
    states.cut(4 * 512);
    states.bring_back({*card, *stream});
    for (const std::int64_t layer : {0, 1, 3}) EXPECT_EQ(kept_value(layer), static_cast<float>(4 * 512 + layer));
    states.reset();
    EXPECT_EQ(kept_value(1), 0.0F);
}

}  // namespace
}  // namespace slipstream
