// Mixtures of experts on emulated cards: one text and one set of bits in every placement, whatever streams, is guessed
// or given up; logits near the CPU's; no graphs; damaged routers in the CPU's words.
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runner_on_cards.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/error_text.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;
using testing::HasSubstr;

constexpr std::int64_t kLayers = 4;

struct Mixture {
    DType type = DType::BF16;
    bool shared_expert = false;  // and a router of sigmoids with a bias for the choice
    std::int64_t n_experts = 6;
    std::int64_t n_chosen = 2;
};

std::unique_ptr<ModelFiles> gpt_oss(DType type) {
    return make_tiny_model({.d_ff = 64,
                            .n_layers = kLayers,
                            .n_q_heads = 2,
                            .n_kv_heads = 1,
                            .head_dim = 64,
                            .window = 100,
                            .weight_type = type,
                            .biases = true,
                            .output_bias = true,
                            .n_experts = 6,
                            .n_chosen = 4,
                            .gpt_oss = true});
}

/// Experts beside a dense feed-forward, with norms before and after each of the two.
std::unique_ptr<ModelFiles> gemma4(DType type) {
    return make_tiny_model({.d_ff = 64,
                            .n_layers = kLayers,
                            .heads = {{2, 1, 64}, {2, 1, 128}, {2, 1, 64}, {2, 1, 128}},
                            .window = 100,
                            .weight_type = type,
                            .gemma4 = true,
                            .n_experts = 6,
                            .n_chosen = 3});
}

/// The first layer is dense.
std::unique_ptr<ModelFiles> mixture(const Mixture& options) {
    return make_tiny_model({.d_ff = 64,
                            .n_layers = kLayers,
                            .n_q_heads = 2,
                            .n_kv_heads = 1,
                            .head_dim = 64,
                            .window = 100,
                            .weight_type = options.type,
                            .head_norms = true,
                            .n_experts = options.n_experts,
                            .n_chosen = options.n_chosen,
                            .shared_expert = options.shared_expert});
}

enum class Devices : std::uint8_t { Card, TwoCards, CardAndCpu, Cpu };

/// A model on cards with its machine.
struct Engine {
    Engine(const ModelFiles& files, Devices which, Streams streams, Timing timing,
           std::optional<std::int32_t> slots = std::nullopt)
        : machine({.n_cards = 2, .timing = timing}) {
        if (which != Devices::Cpu) devices.push_back(emulation::small_card(machine, 0));
        if (which == Devices::TwoCards) devices.push_back(emulation::small_card(machine, 1));
        if (which == Devices::CardAndCpu || which == Devices::Cpu)
            devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1}));
        arena = std::make_unique<PinnedArena>(
            PinnedArenaOptions{.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
        std::vector<ModelShard> shards{whole_shard(files.config())};
        if (devices.size() == 2) shards = deal_layers(files.config(), std::vector<std::int64_t>{3, 1});
        std::vector<Device*> pointers;
        for (const auto& device : devices) pointers.push_back(device.get());
        on_cards = std::make_unique<RunnerOnCards>(files, pointers, shards, *arena, streams, nullptr, std::nullopt,
                                                   emulation::kContext, slots);
    }
    RankTarget& target() { return on_cards->runner->target(); }
    Forward& forward() { return on_cards->runner->forward(); }

    Machine machine;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<PinnedArena> arena;
    std::unique_ptr<RunnerOnCards> on_cards;
};

Generated generate(const ModelFiles& files, Devices which, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}, std::int64_t n_prompt = 60, std::int64_t n_tokens = 12,
                   std::optional<std::int32_t> slots = std::nullopt) {
    Engine engine(files, which, streams, timing, slots);
    const Generated found = emulation::generate_on(engine.target(), future, n_prompt, n_tokens);
    EXPECT_EQ(engine.machine.n_pageable_copies(), 0);
    for (const float logit : found.logits) {
        EXPECT_TRUE(std::isfinite(logit));
        if (!std::isfinite(logit)) break;
    }
    return found;
}

class ExpertsOnCards : public testing::TestWithParam<Timing> {};

TEST_P(ExpertsOnCards, EveryPlacementAndGuessGivesTheBitsOfOneCard) {
    for (const Mixture& options :
         {Mixture{}, Mixture{.type = DType::Q8_0}, Mixture{.type = DType::MXFP4, .shared_expert = true}}) {
        const auto files = mixture(options);
        const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
            EXPECT_EQ(generate(*files, Devices::Card, streams, GetParam()), one);
            EXPECT_EQ(generate(*files, Devices::Card, streams, GetParam(), one.text), one);
        }
        EXPECT_EQ(generate(*files, Devices::TwoCards, Streams::Nothing, GetParam()), one);
        EXPECT_EQ(generate(*files, Devices::TwoCards, Streams::Both, GetParam(), one.text), one);
    }
}

// {no slot, one, half, all}.
TEST_P(ExpertsOnCards, EveryNumberOfSlotsGivesTheBitsOfOneCard) {
    for (const Mixture& options : {Mixture{}, Mixture{.type = DType::MXFP4, .shared_expert = true}}) {
        const auto files = mixture(options);
        const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        for (const std::int32_t slots : {0, 1, 3, 6}) {
            EXPECT_EQ(generate(*files, Devices::Card, Streams::Weights, GetParam(), {}, 60, 12, slots), one);
            EXPECT_EQ(generate(*files, Devices::Card, Streams::Both, GetParam(), one.text, 60, 12, slots), one);
            EXPECT_EQ(generate(*files, Devices::TwoCards, Streams::Both, GetParam(), one.text, 60, 12, slots), one);
        }
    }
}

// Experts take the only slot of a layer from each other, so kernels read a slot right before and after it is
// overwritten.
TEST_P(ExpertsOnCards, ExpertsThatReplaceEachOtherGiveTheBitsOfOneCard) {
    constexpr std::int64_t kTokens = 100;
    const auto files = mixture(Mixture{.type = DType::MXFP4});
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, 60, kTokens);
    Engine engine(*files, Devices::Card, Streams::Weights, GetParam(), 1);
    EXPECT_EQ(emulation::generate_on(engine.target(), {}, 60, kTokens), one);
    std::uint64_t n_evicted = 0;
    for (const ExpertFigures& layer : engine.on_cards->runner->expert_figures()) n_evicted += layer.evicted;
    EXPECT_GT(n_evicted, 0U);
}

// On one card and on two, with what a text on one card chose.
TEST_P(ExpertsOnCards, SlotsThatBeginFullGiveTheBitsOfOneCard) {
    const auto files = mixture(Mixture{.type = DType::MXFP4});
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
    std::vector<ExpertUse> use;
    {
        Engine earlier(*files, Devices::Card, Streams::Weights, GetParam(), 3);
        EXPECT_EQ(emulation::generate_on(earlier.target(), {}, 60, 12), one);
        use = earlier.on_cards->runner->expert_use();
    }
    for (const Devices which : {Devices::Card, Devices::TwoCards}) {
        Engine engine(*files, which, Streams::Weights, GetParam(), 3);
        EXPECT_GT(engine.on_cards->runner->start_slots(use, [](std::size_t, std::size_t) {}), 0U);
        EXPECT_TRUE(engine.on_cards->runner->slots_are_full());
        EXPECT_EQ(emulation::generate_on(engine.target(), one.text, 60, 12), one);
        EXPECT_EQ(engine.machine.n_pageable_copies(), 0);
    }
}

TEST_P(ExpertsOnCards, AModelAsGptOssGivesTheBitsOfOneCard) {
    for (const DType type : {DType::MXFP4, DType::BF16}) {
        const auto files = gpt_oss(type);
        const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        EXPECT_EQ(generate(*files, Devices::Card, Streams::Nothing, GetParam(), one.text), one);
        EXPECT_EQ(generate(*files, Devices::Card, Streams::Both, GetParam(), one.text), one);
        EXPECT_EQ(generate(*files, Devices::TwoCards, Streams::Both, GetParam()), one);
    }
}

TEST_P(ExpertsOnCards, AModelAsGemma4GivesTheBitsOfOneCard) {
    const auto files = gemma4(DType::BF16);
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*files, Devices::Card, Streams::Nothing, GetParam(), one.text), one);
    EXPECT_EQ(generate(*files, Devices::Card, Streams::Both, GetParam(), one.text, 60, 12, 3), one);
    EXPECT_EQ(generate(*files, Devices::TwoCards, Streams::Both, GetParam()), one);
}

TEST_P(ExpertsOnCards, ACardBesideTheCpuGivesOneTextWhateverStreamsAndGuesses) {
    const auto files = mixture({.shared_expert = true});
    const Generated plain = generate(*files, Devices::CardAndCpu, Streams::Nothing, Timing::AtOnce);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        EXPECT_EQ(generate(*files, Devices::CardAndCpu, streams, GetParam()), plain);
        EXPECT_EQ(generate(*files, Devices::CardAndCpu, streams, GetParam(), plain.text), plain);
    }
}

// Several waves of experts in each layer, since a prefill chunk has more rows than are computed together.
TEST_P(ExpertsOnCards, PromptsOfManyRowsGiveTheSameBits) {
    const auto files = mixture({.shared_expert = true, .n_chosen = 3});
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, 560, 3);
    for (const Devices devices : {Devices::Card, Devices::TwoCards}) {
        Engine engine(*files, devices, Streams::Both, GetParam(), 4);
        if (devices == Devices::Card) {
            EXPECT_TRUE(engine.forward().runs_by_layer(engine.on_cards->runner->cache(), 0, 512, kPrefillChunkTokens));
        }
        EXPECT_EQ(emulation::generate_on(engine.target(), {}, 560, 3), one);
    }
}

// What a pass that is given up has left in the queues may still read its host arrays and write into the ring.
TEST_P(ExpertsOnCards, APromptGivenUpInAnyLayerLeavesNothingBehind) {
    const auto files = mixture({.shared_expert = true});
    const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce, {}, 530, 3);
    for (int cancel_at = 0; cancel_at < 7; cancel_at += 2) {
        Engine engine(*files, Devices::Card, Streams::Both, GetParam(), cancel_at / 2);
        Sampler sampler({.temperature = 0.8, .seed = 3}, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer none;
        Sequence sequence(engine.target());
        GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(530));
        std::atomic<bool> cancel = false;
        int n_calls = 0;
        const auto progress = [&](std::int64_t, std::int64_t) { cancel = n_calls++ == cancel_at; };
        for (std::int64_t left = 3; left > 0;) {
            cancel = false;
            left -= std::ssize(loop.step(left, &cancel, progress));
        }
        ASSERT_EQ(loop.text(), one.text) << "given up at " << cancel_at;
        ASSERT_GT(n_calls, cancel_at);
    }
}

INSTANTIATE_TEST_SUITE_P(Timings, ExpertsOnCards, testing::ValuesIn(kTimings));

TEST(ExpertsOnACard, OneExpertAndAllExperts) {
    for (const std::int64_t n_experts : {1, 3}) {
        const auto files = mixture({.type = DType::Q8_0, .n_experts = n_experts, .n_chosen = n_experts});
        const Generated one = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        EXPECT_EQ(generate(*files, Devices::Card, Streams::Both, Timing::Latest, one.text), one);
    }
}

// F32 weights, so that both devices multiply in float and choose the same experts.
TEST(ExpertsOnACard, LogitsAreNearThoseOfTheCpu) {
    // Gemma 4 does not divide scores by the root of the head size, so errors of keys weigh more.
    const std::pair<std::unique_ptr<ModelFiles>, double> models[] = {
        {mixture({.type = DType::F32}), 1e-5},
        {mixture({.type = DType::F32, .shared_expert = true}), 1e-5},
        {gpt_oss(DType::F32), 1e-5},
        {gemma4(DType::F32), 5e-5}};
    for (const auto& [files, limit] : models) {
        const Generated card = generate(*files, Devices::Card, Streams::Nothing, Timing::AtOnce);
        const Generated cpu = generate(*files, Devices::Cpu, Streams::Nothing, Timing::AtOnce);
        EXPECT_EQ(card.text, cpu.text);
        ASSERT_EQ(card.logits.size(), cpu.logits.size());
        double error = 0.0;
        double size = 0.0;
        for (std::size_t i = 0; i < cpu.logits.size(); ++i) {
            error += std::pow(double{card.logits[i]} - double{cpu.logits[i]}, 2);
            size += std::pow(double{cpu.logits[i]}, 2);
        }
        // The KV is rounded to F16, where a number in the middle may go either way.
        EXPECT_LT(error / size, limit);
        EXPECT_GT(error, 0.0);
    }
}

// A wait for weights may fail where products of a wave are collected, to be computed together: none of them may come to
// the next pass.
TEST(ExpertsOnACard, APassThatFailedLeavesNoProductsToTheNext) {
    const auto files = mixture({});
    Engine engine(*files, Devices::Card, Streams::Weights, Timing::AtOnce);
    const Generated one = emulation::generate_on(engine.target(), {}, 5, 1);
    const auto again = [&] {
        engine.target().forget();
        engine.target().truncate(0);
        return emulation::generate_on(engine.target(), {}, 5, 1);
    };
    const std::int64_t before = engine.machine.n_calls(emulation::Call::Event);
    EXPECT_EQ(again(), one);
    const std::int64_t n_events = engine.machine.n_calls(emulation::Call::Event) - before;
    int n_failed = 0;
    for (std::int64_t nth = 1; nth <= n_events; ++nth) {
        engine.machine.fail_in(nth, emulation::Call::Event);
        n_failed += error_text<Error>([&] { static_cast<void>(again()); }) == "nothing thrown" ? 0 : 1;
        engine.machine.fail_in(0);
        ASSERT_EQ(again(), one) << "event " << nth << " of " << n_events;
    }
    EXPECT_GT(n_failed, n_events / 2);
}

TEST(ExpertsOnACard, PassesAreEnqueuedOpByOp) {
    for (const std::int64_t n_experts : {0, 4}) {
        const auto files = make_tiny_model({.n_experts = n_experts});
        Engine engine(*files, Devices::Card, Streams::Nothing, Timing::Latest);
        EXPECT_EQ(engine.forward().graphs() == nullptr, n_experts > 0);
    }
}

TEST(ExpertsOnACard, ARouterThatGivesNoFiniteNumbersNamesLayerAndToken) {
    const auto files = mixture({});
    // A NaN in the router of layer 2 reaches every token; the first one is named.
    float& weight = *const_cast<float*>(float_row(files->weights().layers[2][TensorRole::Router], 4));
    const float before = weight;
    weight = std::numeric_limits<float>::quiet_NaN();
    std::string lines[2];
    for (const Devices devices : {Devices::Cpu, Devices::Card}) {
        Engine engine(*files, devices, Streams::Nothing, Timing::Latest);
        lines[devices == Devices::Card ? 1 : 0] =
            error_text<FormatError>([&] { static_cast<void>(emulation::generate_on(engine.target(), {}, 5, 4)); });
    }
    EXPECT_THAT(lines[1], HasSubstr("layer 2: the router gives the token at position 0 logits that are not finite"));
    EXPECT_EQ(lines[1], lines[0]);
    weight = before;
    EXPECT_EQ(generate(*files, Devices::Card, Streams::Nothing, Timing::Latest, {}, 5, 4).text.size(), 9U);
}

}  // namespace
}  // namespace slipstream
