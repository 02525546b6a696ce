// Slots of experts: texts, logits and KV are those of the resident model, whatever is in the slots, and what fails or
// is given up. What no slot holds is copied.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_faults.h"
#include "runtime/experts/slot_choice.h"
#include "runtime/pass/expert_choices.h"
#include "tests/support/expected_text.h"
#include "tests/support/given_up_passes.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 4;  // the first of mixture() is dense
constexpr std::int32_t kExperts = 9;
constexpr std::int64_t kChosen = 3;
constexpr std::int32_t kSlotNumbers[] = {0, 1, 4, kExperts};
constexpr std::size_t kRing = std::size_t{1} << 19;

std::unique_ptr<ModelFiles> mixture(DType type) {
    return make_tiny_model({.n_layers = kLayers,
                            .window = 300,
                            .weight_type = type,
                            .head_norms = true,
                            .n_experts = kExperts,
                            .n_chosen = kChosen,
                            .shared_expert = true});
}

std::unique_ptr<ModelFiles> gpt_oss() {
    return make_tiny_model({.n_layers = kLayers,
                            .window = 300,
                            .weight_type = DType::MXFP4,
                            .biases = true,
                            .output_bias = true,
                            .n_experts = kExperts,
                            .n_chosen = 4,
                            .gpt_oss = true});
}

std::unique_ptr<ModelFiles> gemma4() {
    return make_tiny_model({.n_layers = kLayers,
                            .heads = {{4, 2, 16}, {4, 1, 32}, {4, 2, 16}, {4, 1, 32}},
                            .window = 300,
                            .weight_type = DType::Q8_0,
                            .gemma4 = true,
                            .n_experts = kExperts,
                            .n_chosen = kChosen});
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

// {no slot, one, half, all} x {experts alone stream, weights and KV as well} x splits x guesses that a self-check
// computes again x threads.
TEST(ExpertSlots, EverySplitAndNumberGivesTheTextLogitsAndKvOfOneDevice) {
    for (const auto& files : {mixture(DType::BF16), gpt_oss(), gemma4()}) {
        for (const std::int64_t n_prompt : {3, 600}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 80 : 20;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing);
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            int n_threads = 1;
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Both}) {
                    for (const std::int32_t slots : kSlotNumbers) {
                        SCOPED_TRACE(testing::Message() << testing::PrintToString(split) << ", " << slots << " slots");
                        n_threads = 3 - n_threads;
                        SplitEngine engine(*files, split, streams, ExpertSlots(slots), kRing,
                                           std::vector<CpuDeviceOptions>(2, {.n_threads = n_threads}));
                        expect_text(engine, one, n_prompt, n_tokens);
                        EXPECT_EQ(kv_of(*engine.target), kv);
                    }
                }
            }
        }
    }
}

/// What the slots of a layer hold, by the policy alone.
struct ReplayedSlots {
    explicit ReplayedSlots(std::int32_t n_slots) : n_free(n_slots) {}

    // A pass needs `needed`; `certain` is what its only certain token chose. Returns what the layer counts of it.
    ExpertFigures pass(const std::vector<std::uint16_t>& needed, std::span<const std::uint16_t> certain,
                       std::size_t expert_bytes) {
        ExpertFigures figures{.needed = needed.size()};
        for (const std::uint16_t expert : needed) figures.hits += held[expert];
        figures.copied_bytes = (figures.needed - figures.hits) * expert_bytes;
        counts.add(certain);
        std::vector<SlotTake> takes;
        if (figures.hits < figures.needed)
            choose_slots({.counts = counts.counts(), .held = held, .needed = needed, .n_free = n_free}, takes);
        for (const SlotTake& take : takes) {
            held[take.expert] = 1;
            if (take.victim == kNoVictim) {
                --n_free;
                continue;
            }
            held[take.victim] = 0;
            ++figures.evicted;
        }
        return figures;
    }

    ExpertCounts counts{kExperts};
    std::vector<std::uint8_t> held = std::vector<std::uint8_t>(kExperts);
    std::int64_t n_free;
};

// Token by token, alone or with a guess that is not committed: passes do what the policy says, and count committed
// tokens alone.
TEST(ExpertSlots, SlotsGoToExpertsThatAreChosenMoreOften) {
    const auto files = mixture(DType::Q8_0);
    for (const bool guesses : {false, true}) {
        for (const std::int32_t slots : kSlotNumbers) {
            SCOPED_TRACE(testing::Message() << slots << " slots" << (guesses ? ", guesses" : ""));
            SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots));
            ExpertChoices choices(engine.models.front()->config(), engine.target->shape().max_nodes);
            engine.target->note_choices_in({&choices});
            std::vector<ReplayedSlots> replayed(kLayers, ReplayedSlots(slots));
            std::uint64_t n_evicted = 0;
            for (const TokenId token : prompt_of(150)) {
                std::vector<TokenId> tokens{token};
                std::vector<NodeId> nodes{engine.target->add_node(kCommittedTip, NodeKind::Certain)};
                if (guesses) {
                    tokens.push_back((token + 1) % kTinyVocab);
                    nodes.push_back(engine.target->add_node(nodes.front()));
                }
                const std::vector<ExpertFigures> before = engine.runner->expert_figures();
                static_cast<void>(engine.target->run({.tokens = tokens, .nodes = nodes}));
                const std::vector<ExpertFigures> after = engine.runner->expert_figures();
                for (std::size_t layer = 1; layer < kLayers; ++layer) {
                    std::vector<std::uint16_t> needed;
                    for (const NodeId node : nodes)
                        for (const std::uint16_t expert : choices.of(static_cast<std::int64_t>(layer), node))
                            if (std::ranges::find(needed, expert) == needed.end()) needed.push_back(expert);
                    const ExpertFigures expected = replayed[layer].pass(
                        needed, choices.of(static_cast<std::int64_t>(layer), nodes.front()), expert_bytes(engine));
                    const ExpertFigures found = after[layer] - before[layer];
                    ASSERT_EQ(found.needed, expected.needed);
                    ASSERT_EQ(found.hits, expected.hits);
                    ASSERT_EQ(found.copied_bytes, expected.copied_bytes);
                    ASSERT_EQ(found.evicted, expected.evicted);
                    n_evicted += found.evicted;
                }
                engine.target->commit(std::span(nodes).first(1));
            }
            EXPECT_EQ(n_evicted > 0, slots == 1 || slots == 4);
        }
    }
}

// An expert is copied once and stays, until another takes its slot, or it has found none and is copied in each pass.
TEST(ExpertSlots, APassCopiesWhatNoSlotHolds) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(3), 60);
    std::uint64_t fewer = 0;  // bytes that the number of slots before has copied
    for (const std::int32_t slots : kSlotNumbers) {
        SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots));
        EXPECT_EQ(engine.runner->slots_are_full(), slots == 0);
        EXPECT_EQ(plainly(*engine.target, prompt_of(3), 60), one);
        const std::size_t bytes = expert_bytes(engine);
        const ExpertFigures sum = sum_of(engine);
        EXPECT_EQ(sum.needed, sum_of(whole).needed);
        EXPECT_EQ(sum.copied_bytes, (sum.needed - sum.hits) * bytes);
        EXPECT_EQ(sum.copied_bytes, engine.runner->streamed().weights_bytes);
        EXPECT_EQ(sum.copied_bytes, engine.own.front()->device.link_in().bytes);
        EXPECT_EQ(engine.runner->slots_are_full(), slots < kExperts || sum.copied_bytes == 27 * bytes);
        if (slots == 0) {
            EXPECT_EQ(sum.hits, 0U);
        } else {
            EXPECT_LT(sum.copied_bytes, fewer);
        }
        if (slots == kExperts) {
            EXPECT_LE(sum.copied_bytes, (kLayers - 1) * kExperts * bytes) << "each once";
            engine.target->truncate(0);
            EXPECT_EQ(plainly(*engine.target, prompt_of(3), 60), one);
            EXPECT_EQ(sum_of(engine).copied_bytes, sum.copied_bytes) << "all are held";
        }
        fewer = sum.copied_bytes;
    }
}

// A prompt that goes layer by layer reads from slots what they hold, and copies the rest once.
TEST(ExpertSlots, APromptByLayersCopiesWhatNoSlotHolds) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(1100), 3);
    for (const std::int32_t slots : kSlotNumbers) {
        SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots), kRing);
        static_cast<void>(plainly(*engine.target, prompt_of(3), 60));
        const std::uint64_t held = slots < kExperts ? (kLayers - 1) * static_cast<std::uint64_t>(slots)
                                                    : engine.runner->streamed().weights_bytes / expert_bytes(engine);
        engine.target->truncate(0);
        ASSERT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 1024, kPrefillChunkTokens));
        const std::uint64_t before = engine.runner->streamed().weights_bytes;
        const Generated found = plainly(*engine.target, prompt_of(1100), 1);
        EXPECT_EQ(found.text, std::vector<TokenId>(one.text.begin(), one.text.begin() + 1101));
        EXPECT_EQ(engine.runner->streamed().weights_bytes - before,
                  ((kLayers - 1) * kExperts - held) * expert_bytes(engine));
        engine.target->truncate(0);
        EXPECT_EQ(plainly(*engine.target, prompt_of(1100), 3), one);
    }
}

/// Tokens that are certain and committed one by one, as a text that is read.
void feed(SplitEngine& engine, const std::vector<TokenId>& tokens) {
    for (const TokenId token : tokens) {
        const std::vector<NodeId> node{engine.target->add_node(kCommittedTip, NodeKind::Certain)};
        static_cast<void>(engine.target->run({.tokens = std::vector{token}, .nodes = node}));
        engine.target->commit(node);
    }
}

void expect_same(const std::vector<ExpertUse>& a, const std::vector<ExpertUse>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t layer = 0; layer < a.size(); ++layer) {
        EXPECT_EQ(a[layer].n_tokens(), b[layer].n_tokens());
        EXPECT_TRUE(std::ranges::equal(a[layer].counts().counts(), b[layer].counts().counts()));
        EXPECT_TRUE(std::ranges::equal(a[layer].ranks(), b[layer].ranks()));
    }
}

std::size_t start(SplitEngine& engine, const std::vector<ExpertUse>& use) {
    std::size_t last = 0;
    const std::size_t bytes = engine.runner->start_slots(use, [&](std::size_t done, std::size_t total) {
        EXPECT_GT(done, last);
        EXPECT_LE(done, total);
        last = done;
    });
    EXPECT_EQ(bytes, last);
    return bytes;
}

// A second engine begins with the slots of the first one's counts, over other devices, too: it hits more at first, its
// texts are the same, and its counts are those of one engine that goes on.
TEST(ExpertSlots, BeginWithWhatEarlierTextsChose) {
    constexpr std::ptrdiff_t kFirstTokens = 8;
    const auto files = mixture(DType::Q8_0);
    const std::vector<TokenId> text = prompt_of(400);
    const std::span<const TokenId> first(text.data(), 330);
    const std::span<const TokenId> second(text.data() + 330, 70);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(5), 12);
    EXPECT_TRUE(whole.runner->expert_use().empty()) << "nothing streams";
    for (const std::int32_t slots : {1, 4, kExperts}) {
        SCOPED_TRACE(testing::Message() << slots << " slots");
        SplitEngine earlier(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots));
        feed(earlier, {first.begin(), first.end()});
        const std::vector<ExpertUse> use = earlier.runner->expert_use();
        ASSERT_EQ(use.size(), kLayers);
        EXPECT_EQ(use[0].n_experts(), 0) << "a dense layer";
        EXPECT_EQ(use[3].n_tokens(), 330U);
        earlier.target->truncate(0);  // another text; counts and slots stay
        feed(earlier, {second.begin(), second.end()});
        SplitEngine cold(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots));
        feed(cold, {second.begin(), second.begin() + kFirstTokens});
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}, {2, 2}}) {
            SCOPED_TRACE(testing::PrintToString(split));
            SplitEngine later(*files, split, Streams::Nothing, ExpertSlots(slots));
            const std::size_t bytes = start(later, use);
            EXPECT_TRUE(later.runner->slots_are_full() || slots == kExperts);
            EXPECT_EQ(bytes, later.runner->streamed().weights_bytes);
            std::uint64_t on_links = 0;
            for (const auto& each : later.own) on_links += each->device.link_in().bytes;
            EXPECT_GE(on_links, bytes);
            EXPECT_EQ(bytes % expert_bytes(later), 0U);
            if (slots < kExperts) {
                EXPECT_EQ(bytes, 3 * static_cast<std::size_t>(slots) * expert_bytes(later));
            }
            expect_same(later.runner->expert_use(), use);
            EXPECT_EQ(start(later, use), 0U) << "they are full";
            feed(later, {second.begin(), second.begin() + kFirstTokens});
            if (slots > 1) {  // one slot hits by chance
                EXPECT_GT(sum_of(later).hits, sum_of(cold).hits);
            }
            feed(later, {second.begin() + kFirstTokens, second.end()});
            const ExpertFigures sum = sum_of(later);
            EXPECT_EQ(sum.copied_bytes, (sum.needed - sum.hits) * expert_bytes(later)) << "the passes' own";
            expect_same(later.runner->expert_use(), earlier.runner->expert_use());
            later.target->truncate(0);
            EXPECT_EQ(plainly(*later.target, prompt_of(5), 12), one);
        }
    }
}

TEST(ExpertSlots, ThatCannotBeginAreFreeAndServe) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(5), 12);
    SplitEngine earlier(*files, {kLayers}, Streams::Nothing, ExpertSlots(4));
    feed(earlier, prompt_of(80));
    const std::vector<ExpertUse> use = earlier.runner->expert_use();
    for (int fails = 1; fails <= 13; ++fails) {
        SCOPED_TRACE(fails);
        CpuFaults faults;
        faults.stall_after = std::chrono::milliseconds(20);
        SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(4), kRing,
                           {{.n_threads = 1, .faults = &faults}});
        (fails % 2 == 0 ? faults.copies_until_failure : faults.copies_until_stall) = fails;
        const auto attempt = [&] {
            static_cast<void>(engine.runner->start_slots(use, [](std::size_t, std::size_t) {}));
        };
        if (fails <= 12) {  // 4 slots in 3 layers
            EXPECT_THROW(attempt(), IoError);
        } else {
            attempt();
        }
        EXPECT_EQ(engine.runner->slots_are_full(), fails > 12);
        faults.copies_until_failure = faults.copies_until_stall = 0;
        EXPECT_EQ(plainly(*engine.target, prompt_of(5), 12), one);
    }
    // Given up between two layers.
    SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(4));
    EXPECT_THROW(
        static_cast<void>(engine.runner->start_slots(use, [](std::size_t, std::size_t) { throw IoError("enough"); })),
        IoError);
    EXPECT_EQ(plainly(*engine.target, prompt_of(5), 12), one);
}

// Any copy on demand fails or stalls: the error is told, and the same target makes the same text.
TEST(ExpertSlots, AFailedCopyEndsThePassAndNothingElse) {
    const auto files = mixture(DType::Q8_0);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(5), 12);
    std::mt19937 random(3);
    int n_told = 0;
    for (int round = 0; round < 60; ++round) {
        CpuFaults faults;
        faults.stall_after = std::chrono::milliseconds(20);
        const auto slots = static_cast<std::int32_t>(1 + random() % kExperts);
        SCOPED_TRACE(testing::Message() << "round " << round << ", " << slots << " slots");
        SplitEngine engine(*files, {kLayers}, round % 3 == 0 ? Streams::Both : Streams::Nothing, ExpertSlots(slots),
                           kRing, {{.n_threads = 1, .faults = &faults}});
        for (int again = 0; again < 3; ++again) {
            (random() % 4 == 0 ? faults.copies_until_stall : faults.copies_until_failure) = 1 + random() % 60;
            try {
                EXPECT_EQ(plainly(*engine.target, prompt_of(5), 12), one);
            } catch (const IoError&) {
                ++n_told;
            }
            faults.copies_until_failure = faults.copies_until_stall = 0;
            engine.target->forget();
            engine.target->truncate(random() % 2 == 0 ? 0 : std::min<std::int64_t>(engine.target->n_committed(), 4));
            EXPECT_EQ(plainly(*engine.target, prompt_of(5), 12), one);
            engine.target->truncate(0);
        }
    }
    EXPECT_GT(n_told, 40);
}

// Passes of a prompt and passes after it are given up while experts come over a slow link: a stop ends their copies.
TEST(ExpertSlots, APassGivenUpLeavesNothingBehind) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(20), 6);
    std::mt19937 random(4);
    int n_given_up = 0;
    for (const std::int32_t slots : kSlotNumbers) {
        for (int round = 0; round < 6; ++round) {
            SCOPED_TRACE(testing::Message() << slots << " slots, round " << round);
            std::atomic<bool> cancel = false;
            CpuFaults faults;
            faults.stop = &cancel;
            SplitEngine engine(*files, {kLayers}, Streams::Nothing, ExpertSlots(slots), kRing,
                               {{.n_threads = 1, .link_bytes_per_second = 4e6, .faults = &faults}});
            // An expert takes 3 ms over this link, so most passes are hit between their copies.
            const InterruptedText found = interrupted_text(
                engine, prompt_of(20), 6, cancel, [&] { return std::chrono::milliseconds(1 + random() % 40); });
            n_given_up += found.n_given_up;
            EXPECT_EQ(found.text, one.text);
        }
    }
    EXPECT_GT(n_given_up, 0);
}

TEST(ExpertSlotsDeathTest, SlotsAreForModelsWhoseExpertsStream) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork alone has no thread that copies
    const auto files = mixture(DType::Q8_0);
    SplitEngine engine(*files, {kLayers}, Streams::Weights);  // every third item is resident
    const PassReads reads{engine.models.front().get(), &engine.runner->cache()};
    const std::vector<std::int32_t> slots(kLayers, 2);
    EXPECT_DEATH(PassStream({reads}, engine.arena(), kRing, slots), "is resident beside slots");
    EXPECT_DEATH(PassStream({reads}, engine.arena(), kRing, std::span(slots).first(2)), "slots of 2 layers");
}

}  // namespace
}  // namespace slipstream
