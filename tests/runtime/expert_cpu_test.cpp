// Experts that a device lacks are copied to it, computed by the CPU where they are in host memory, or (drawn at
// random) one or the other: texts, logits and KV are those of the resident model, whatever is done with whom.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_faults.h"
#include "tests/support/expected_text.h"
#include "tests/support/given_up_passes.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 4;  // the first of mixture() is dense
constexpr std::int32_t kExperts = 9;
constexpr std::size_t kRing = std::size_t{1} << 19;

std::unique_ptr<ModelFiles> mixture(DType type) {
    return make_tiny_model({.n_layers = kLayers,
                            .window = 300,
                            .weight_type = type,
                            .head_norms = true,
                            .n_experts = kExperts,
                            .n_chosen = 3,
                            .shared_expert = true});
}

std::size_t expert_bytes(const SplitEngine& engine) {
    const Model& model = *engine.models.back();
    return model.items()[model.expert_item(model.config().n_layers() - 1, 0)].bytes;
}

ExpertFigures sum_of(const SplitEngine& engine) {
    ExpertFigures sum;
    for (const ExpertFigures& layer : engine.runner->expert_figures()) sum += layer;
    return sum;
}

/// What becomes of missed experts: {copied, computed on the CPU, split at random}.
ExpertSlots way_of(int way, std::int32_t slots) {
    if (way == 0) return ExpertSlots(slots);
    if (way == 1) return ExpertSlots(slots, ExpertMisses::Cpu);
    return ExpertSlots(slots, ExpertMisses::Copy, 11);
}

// {no slot, one, half, all} x {copy, CPU, shuffled} x {one device, layers over two} x threads x {plain, guesses
// that a self-check computes again} x {experts alone are not on the device, weights and KV stream as well}.
TEST(ExpertCpu, EveryPlaceGivesTheTextLogitsAndKvOfTheResidentModel) {
    for (const DType type : {DType::F32, DType::Q8_0}) {
        const auto files = mixture(type);
        for (const std::int64_t n_prompt : {3, 600}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 40 : 12;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing);
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            int n_threads = 0;
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}}) {
                for (int way = 0; way < 3; ++way) {
                    for (const std::int32_t slots : {0, 1, 4, kExperts}) {
                        SCOPED_TRACE(testing::Message()
                                     << testing::PrintToString(split) << ", way " << way << ", " << slots << " slots");
                        n_threads = n_threads % 3 + 1;
                        SplitEngine engine(*files, split, n_threads == 2 ? Streams::Both : Streams::Nothing,
                                           way_of(way, slots), kRing,
                                           std::vector<CpuDeviceOptions>(2, {.n_threads = n_threads}));
                        expect_text(engine, one, n_prompt, n_tokens);
                        EXPECT_EQ(kv_of(*engine.target), kv);
                    }
                }
            }
        }
    }
}

// With Cpu nothing of an expert crosses the link, neither for passes nor for prompts by layers, and the ring may be
// empty.
TEST(ExpertCpu, ExpertsOnTheCpuAreNotCopied) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    for (const std::int64_t n_prompt : {3, 1100}) {
        whole.target->truncate(0);
        const Generated one = plainly(*whole.target, prompt_of(n_prompt), 20);
        for (const std::int32_t resident : {0, 4}) {
            SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(resident, ExpertMisses::Cpu), 0);
            EXPECT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 1024, kPrefillChunkTokens));
            EXPECT_EQ(plainly(*engine.target, prompt_of(n_prompt), 20), one);
            const ExpertFigures sum = sum_of(engine);
            EXPECT_EQ(sum.cpu + sum.hits, sum.needed);
            EXPECT_GT(sum.cpu, 0U);
            EXPECT_EQ(sum.hits > 0, resident > 0);
            EXPECT_EQ(sum.copied_bytes, 0U);
            EXPECT_EQ(engine.runner->streamed().weights_bytes, 0U);
            if (n_prompt == 3) {  // hidden states of a prompt by layers come over it
                EXPECT_EQ(engine.own.front()->device.link_in().bytes, 0U);
            }
            EXPECT_TRUE(engine.runner->slots_are_full());
        }
    }
    // Beside dense weights that stream, a ring for these is enough.
    SplitEngine both(*files, {kLayers}, Streams::Both, ExpertSlots(0, ExpertMisses::Cpu), std::size_t{1} << 16);
    EXPECT_THROW(SplitEngine(*files, {kLayers}, Streams::Both, ExpertSlots(0), std::size_t{1} << 16), OutOfBudget);
    whole.target->truncate(0);
    EXPECT_EQ(plainly(*both.target, prompt_of(3), 20), plainly(*whole.target, prompt_of(3), 20));
    EXPECT_EQ(sum_of(both).copied_bytes, 0U);
}

// Where some are copied and some computed, each is counted once, and only copied ones get slots.
TEST(ExpertCpu, CountsWhatIsCopiedAndWhatIsComputed) {
    const auto files = mixture(DType::Q8_0);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(3), 60);
    for (const std::int32_t slots : {0, 1, 4, kExperts}) {
        SCOPED_TRACE(testing::Message() << slots << " slots");
        SplitEngine engine(*files, {kLayers}, Streams::Nothing, way_of(2, slots));
        EXPECT_EQ(plainly(*engine.target, prompt_of(3), 60), one);
        const ExpertFigures sum = sum_of(engine);
        EXPECT_EQ(sum.needed, sum_of(whole).needed);
        EXPECT_EQ(sum.copied_bytes, (sum.needed - sum.hits - sum.cpu) * expert_bytes(engine));
        EXPECT_EQ(sum.copied_bytes, engine.own.front()->device.link_in().bytes);
        EXPECT_GT(sum.copied_bytes, 0U);
        EXPECT_GT(sum.cpu, 0U);
        EXPECT_EQ(sum.hits > 0, slots > 0);
    }
}

// The same text with any rules, one after the other over the same target's history: what a session that is resumed
// with another --experts does.
TEST(ExpertCpu, ATextGoesOnWithOtherRules) {
    const auto files = mixture(DType::Q8_0);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(530), 30);
    for (int way = 0; way < 3; ++way) {
        SplitEngine engine(*files, {kLayers}, Streams::Nothing, way_of(way, 4), kRing);
        const std::vector<TokenId> begun(one.text.begin(), one.text.begin() + 545);
        engine.target->truncate(0);
        const Generated found = plainly(*engine.target, begun, 15);
        EXPECT_EQ(found.text, one.text);
    }
}

// Copies, and ops of either side, fail at any call: the error is told, and the same target makes the same text.
TEST(ExpertCpu, AFaultOfEitherSideEndsThePassAndNothingElse) {
    const auto files = mixture(DType::Q8_0);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(5), 8);
    std::mt19937 random(7);
    int n_told = 0;
    for (int round = 0; round < 48; ++round) {
        CpuFaults faults;
        faults.stall_after = std::chrono::milliseconds(20);
        const int way = 1 + round % 2;
        SCOPED_TRACE(testing::Message() << "round " << round << ", way " << way);
        SplitEngine engine(*files, {kLayers}, round % 4 == 0 ? Streams::Both : Streams::Nothing,
                           way_of(way, static_cast<std::int32_t>(random() % (kExperts + 1))), kRing,
                           {{.n_threads = 1 + round % 2, .faults = &faults}});
        for (int again = 0; again < 2; ++again) {
            (random() % 2 == 0   ? faults.ops_until_failure
             : random() % 3 == 0 ? faults.copies_until_stall
                                 : faults.copies_until_failure) = 1 + static_cast<std::int64_t>(random() % 200);
            try {
                EXPECT_EQ(plainly(*engine.target, prompt_of(5), 8), one);
            } catch (const Error& error) {
                EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
                ++n_told;
            }
            faults.ops_until_failure = faults.copies_until_failure = faults.copies_until_stall = 0;
            const auto text_after = [&](std::int64_t n_kept) {
                engine.target->forget();
                engine.target->truncate(std::min(engine.target->n_committed(), n_kept));
                return plainly(*engine.target, prompt_of(5), 8);
            };
            // A copy that was made ahead may have failed unseen: the cut, or the next pass, tells it once.
            try {
                EXPECT_EQ(text_after(random() % 2 == 0 ? 0 : 4), one);
            } catch (const Error&) {
                EXPECT_EQ(text_after(0), one);
            }
            engine.target->truncate(0);
        }
    }
    EXPECT_GT(n_told, 30);
}

// Passes are given up while experts are copied and computed.
TEST(ExpertCpu, APassGivenUpLeavesNothingBehind) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(20), 6);
    std::mt19937 random(8);
    int n_given_up = 0;
    for (int way = 1; way < 3; ++way) {
        for (int round = 0; round < 9; ++round) {
            SCOPED_TRACE(testing::Message() << "way " << way << ", round " << round);
            std::atomic<bool> cancel = false;
            CpuFaults faults;
            faults.stop = &cancel;
            SplitEngine engine(*files, {kLayers}, Streams::Nothing, way_of(way, 1 + round % 4), kRing,
                               {{.n_threads = 1, .link_bytes_per_second = 4e6, .faults = &faults}});
            const InterruptedText found = interrupted_text(engine, prompt_of(20), 6, cancel,
                                                           [&] { return std::chrono::milliseconds(random() % 12); });
            n_given_up += found.n_given_up;
            EXPECT_EQ(found.text, one.text);
        }
    }
    EXPECT_GT(n_given_up, 0);
}

TEST(ExpertCpuDeathTest, SlotsAreForExpertsThatAreCopied) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork alone has no thread that copies
    const auto files = mixture(DType::Q8_0);
    SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(0, ExpertMisses::Cpu));
    const PassReads reads{engine.models.front().get(), &engine.runner->cache()};
    const std::vector<std::int32_t> slots(kLayers, 2);
    EXPECT_DEATH(PassStream({reads}, engine.arena(), kRing, slots, {.misses = ExpertMisses::Cpu}),
                 "slots, and nothing is copied to them");
}

}  // namespace
}  // namespace slipstream
