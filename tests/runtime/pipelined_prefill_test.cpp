// Prompts through several devices at once give the bits of one device, read each weight once, and leave no trace where
// they are given up or fail.
#include "runtime/ranks/pipelined_prefill.h"

#include <atomic>
#include <chrono>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_faults.h"
#include "runtime/loop/generation_loop.h"
#include "tests/support/error_text.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

const std::vector<std::vector<std::int64_t>> kSplits{{3, 3}, {4, 2}, {1, 5}, {2, 2, 2}, {3, 2, 1}};
constexpr Streams kAllStreams[] = {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both};
constexpr std::size_t kRing = std::size_t{1} << 19;

std::size_t weights_that_stream(const Model& model) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < model.items().size(); ++i)
        if (model.streams(static_cast<std::int32_t>(i))) bytes += model.items()[i].bytes;
    return bytes;
}

class PipelinedPrefillTest : public testing::Test {
protected:
    /// In pieces, all resident.
    Generated on_one_device(std::int64_t n_prompt, std::int64_t n_tokens) {
        SplitEngine whole(*files_, {6}, Streams::Nothing);
        RankTarget& target = *whole.target;
        EXPECT_FALSE(target.takes_prompt(512));
        Generated plain = plainly(target, prompt_of(n_prompt), n_tokens);
        kv_ = kv_of(target);
        return plain;
    }

    std::unique_ptr<ModelFiles> files_ =
        make_tiny_model({.n_layers = 6, .window = 300, .weight_type = DType::BF16, .biases = true, .head_norms = true});
    std::vector<std::byte> kv_;  // of what on_one_device() generated last
};

TEST_F(PipelinedPrefillTest, EverySplitAndPlacementGivesTheBitsOfOneDevice) {
    for (const std::int64_t n_prompt : {513, 1300}) {
        const Generated one = on_one_device(n_prompt, 8);
        for (const auto& split : kSplits) {
            for (const Streams streams : kAllStreams) {
                SplitEngine engine(*files_, split, streams, {}, kRing);
                ASSERT_TRUE(engine.target->takes_prompt((n_prompt - 1) / 512 * 512)) << static_cast<int>(streams);
                EXPECT_EQ(plainly(*engine.target, prompt_of(n_prompt), 8), one)
                    << testing::PrintToString(split) << ", " << static_cast<int>(streams);
                EXPECT_EQ(kv_of(*engine.target), kv_);
            }
        }
    }
}

TEST_F(PipelinedPrefillTest, APromptWhoseKvIsReadAgainForEachPrefillChunkHasTheSameBits) {
    const Generated one = on_one_device(2400, 8);
    for (const auto& split : {kSplits[0], kSplits[4]}) {
        for (const Streams streams : {Streams::Kv, Streams::Both}) {
            // The smallest ring that does has no room for all KV of a layer.
            std::size_t ring = std::size_t{1} << 17;
            std::optional<SplitEngine> found;
            do {
                ring += 8192;
                found.emplace(*files_, split, streams, std::vector<CpuDeviceOptions>{}, ring);
            } while (!found->target->takes_prompt(2048));
            SplitEngine& engine = *found;
            EXPECT_EQ(plainly(*engine.target, prompt_of(2400), 1).logits.size(), kTinyVocab);
            for (std::size_t rank = 0; rank < engine.models.size(); ++rank)
                EXPECT_GT(engine.runner->stream(rank)->figures().kv_bytes, 0U);
            engine.target->truncate(0);
            EXPECT_EQ(plainly(*engine.target, prompt_of(2400), 8), one);
            EXPECT_EQ(kv_of(*engine.target), kv_);
        }
    }
}

TEST_F(PipelinedPrefillTest, EachWeightIsReadOnceHoweverLongThePromptIs) {
    for (const std::int64_t n_prompt : {600, 1100, 2300}) {
        SplitEngine engine(*files_, {3, 2, 1}, Streams::Weights);
        static_cast<void>(plainly(*engine.target, prompt_of(n_prompt), 1));
        for (std::size_t rank = 0; rank < engine.models.size(); ++rank)
            EXPECT_EQ(engine.runner->stream(rank)->figures().weights_bytes, weights_that_stream(*engine.models[rank]))
                << n_prompt;
    }
}

// A conversation whose turns are long: each begins anywhere.
TEST_F(PipelinedPrefillTest, ATurnMayBeginAnywhere) {
    std::mt19937 random(8);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        SplitEngine whole(*files_, {6}, Streams::Nothing);
        RankTarget& one = *whole.target;
        SplitEngine several(*files_, {2, 3, 1}, streams, {}, kRing);
        std::vector<TokenId> text;
        for (int turn = 0; turn < 4; ++turn) {
            const auto kept =
                static_cast<std::int64_t>(random() % (std::min(one.n_committed(), std::ssize(text)) + 1U));
            text.resize(static_cast<std::size_t>(kept));
            for (const TokenId token : prompt_of(600 + static_cast<std::int64_t>(random() % 900)))
                text.push_back(token);
            if (std::ssize(text) > SplitEngine::kContext - 20) text.resize(SplitEngine::kContext - 20);
            one.truncate(kept);
            several.target->truncate(kept);
            const Generated expected = plainly(one, text, 6);
            ASSERT_EQ(plainly(*several.target, text, 6), expected) << "turn " << turn << " from " << kept;
            text = expected.text;
        }
    }
}

// Ctrl-C at any layer and piece, and again.
TEST_F(PipelinedPrefillTest, APromptThatIsGivenUpLeavesNoTrace) {
    const Generated one = on_one_device(1300, 8);
    std::mt19937 random(21);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        SplitEngine engine(*files_, {3, 2, 1}, streams, {}, kRing);
        for (int round = 0; round < 12; ++round) {
            engine.target->truncate(std::min<std::int64_t>(engine.target->n_committed(), random() % 700));
            const std::int64_t before = engine.target->n_committed();
            const std::vector<std::byte> kv = kv_of(*engine.target);
            Sampler sampler(kTinySampling, kTinyVocab);
            ExactVerifier verifier(sampler);
            NoProposer nothing;
            Sequence sequence(*engine.target);
            GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
            loop.begin(prompt_of(1300));
            std::atomic<bool> cancel{false};
            const auto at = static_cast<std::int64_t>(random() % 800);
            double told = 0;
            const auto control = [&](std::int64_t done, std::int64_t) {
                EXPECT_GE(static_cast<double>(done), told);
                told = static_cast<double>(done);
                cancel = done >= at;
            };
            EXPECT_TRUE(loop.step(1, &cancel, control).empty());
            ASSERT_EQ(engine.target->n_committed(), before);
            EXPECT_EQ(kv_of(*engine.target), kv);
            engine.target->truncate(0);
            ASSERT_EQ(plainly(*engine.target, prompt_of(1300), 8), one) << "round " << round;
            EXPECT_EQ(kv_of(*engine.target), kv_);
        }
    }
}

struct NamedFault {
    std::atomic<std::int64_t> CpuFaults::*fault;
    std::int64_t most;
    Streams streams;
    const char* what;
};

// One line with device, layer and kind; then the prompt is as if nothing had been.
TEST_F(PipelinedPrefillTest, AFailureAnywhereInAPromptIsNamedAndLeavesNoTrace) {
    const Generated one = on_one_device(1300, 4);
    std::mt19937 random(5);
    for (const NamedFault& named :
         {NamedFault{&CpuFaults::copies_until_failure, 12, Streams::Weights,
                     "device 2, (layer [135]|the LM head): weights: device 2, copies in"},
          NamedFault{&CpuFaults::copies_until_stall, 12, Streams::Weights,
                     "device 2, (layer [135]|the LM head): weights: device 2, copies in: .* made no progress"},
          NamedFault{&CpuFaults::copies_until_stall, 9, Streams::Kv,
                     "device 2, .*KV: device 2, copies .* made no progress"},
          NamedFault{&CpuFaults::rows_until_failure, 15, Streams::Nothing,
                     "device 2, layer [135]: rows: device 2: a copy"},
          NamedFault{&CpuFaults::ops_until_failure, 100, Streams::Both,
                     "device 2, (layer [135]|the LM head): device 2: a kernel"}}) {
        for (int round = 0; round < 3; ++round) {
            CpuFaults faults{.stall_after = std::chrono::milliseconds(200)};
            SplitEngine engine(*files_, {3, 3}, named.streams,
                               {{.name = "device 1"}, {.name = "device 2", .faults = &faults}}, kRing);
            static_cast<void>(plainly(*engine.target, prompt_of(300), 1));
            const std::int64_t before = engine.target->n_committed();
            const std::vector<std::byte> kv = kv_of(*engine.target);
            faults.*named.fault = 1 + static_cast<std::int64_t>(random()) % named.most;
            Sampler sampler(kTinySampling, kTinyVocab);
            ExactVerifier verifier(sampler);
            NoProposer nothing;
            Sequence sequence(*engine.target);
            GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
            loop.begin(prompt_of(1300));
            const auto began = std::chrono::steady_clock::now();
            EXPECT_THAT(error_text<RankFailed>([&] { static_cast<void>(loop.step(1)); }),
                        testing::ContainsRegex(named.what));
            EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
            EXPECT_LE(engine.target->n_committed(), before);
            if (engine.target->n_committed() == before) {
                EXPECT_EQ(kv_of(*engine.target), kv);
            }
            EXPECT_EQ(plainly(*engine.target, prompt_of(1300), 4), one) << named.what;
            EXPECT_EQ(kv_of(*engine.target), kv_);
        }
    }
}

// Hidden states that the host has no room for: in pieces, as before.
TEST_F(PipelinedPrefillTest, APromptWithoutRoomOnTheHostGoesInPrefillChunks) {
    const Generated one = on_one_device(1300, 4);
    SplitEngine engine(*files_, {3, 3}, Streams::Weights);
    PinnedArena& arena = engine.arena();
    ASSERT_TRUE(engine.target->takes_prompt(1024));
    {
        const std::size_t needed = 3 * engine.runner->forward().limits().max_tokens * 64 * sizeof(float);
        const PinnedBuffer rest = arena.allocate(arena.limit_bytes() - arena.used_bytes() - needed + 1, "the rest");
        EXPECT_FALSE(engine.target->takes_prompt(1024));
        EXPECT_TRUE(engine.target->takes_prompt(512));
    }
    const PinnedBuffer rest = arena.allocate(arena.limit_bytes() - arena.used_bytes(), "the rest");
    EXPECT_EQ(plainly(*engine.target, prompt_of(1300), 4), one);
}

}  // namespace
}  // namespace slipstream
