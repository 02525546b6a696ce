// Models that stream give the bits of models that do not: every placement of items and chunks, rings from two blocks
// on, prompts around chunk borders, guesses, cuts, cancelled passes.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "kernels/workspace.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_stream.h"
#include "runtime/ranks/model_runner.h"
#include "tests/support/device_self_check.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{64} << 20;
const TinyModelOptions kMixture{.n_layers = 3, .n_experts = 7, .n_chosen = 3};

std::vector<TokenId> prompt_of(std::size_t n) {
    std::vector<TokenId> prompt(n);
    for (std::size_t i = 0; i < n; ++i) prompt[i] = static_cast<TokenId>((i * 31 + i / 7 + 7) % 97);
    return prompt;
}

struct Placement {
    std::size_t max_item_bytes = kUncutItems;
    std::vector<bool> items{};           // that stream; empty: none
    std::vector<std::int64_t> chunks{};  // resident of each layer; empty: all
    std::size_t ring_bytes = 0;
    bool streams() const { return !chunks.empty() || std::find(items.begin(), items.end(), true) != items.end(); }
};

// A model with all that runs it, placed somehow.
class Engine {
public:
    Engine(const ModelFiles& files, const Placement& placement, std::int64_t context, std::int64_t budget,
           CpuDeviceOptions device_options = {})
        : arena_({.limit_bytes = kArenaBytes, .page_lock = PageLock::Pageable}),
          device_(device_options),
          model_(files, device_,
                 {.context_tokens = context,
                  .placement = {.max_item_bytes = placement.max_item_bytes,
                                .streams = placement.items,
                                .arena = &arena_}}),
          runner_({{.model = &model_,
                    .kv = {.resident_chunks = placement.chunks, .arena = &arena_},
                    .ring_bytes = placement.ring_bytes}},
                  {.text_tokens = context,
                   .forward = forward_limits_for(budget),
                   .scratch_nodes = SelfCheck::scratch_nodes_for(budget)},
                  &arena_) {}

    CpuDevice& device() { return device_; }
    Model& model() { return model_; }
    KvCache& cache() { return runner_.cache(); }
    Forward& forward() { return runner_.forward(); }
    RankTarget& target() { return runner_.target(); }
    PassStream* pass() { return runner_.stream(); }

private:
    PinnedArena arena_;
    CpuDevice device_;
    Model model_;
    ModelRunner runner_;
};

Generated generate(Engine& engine, const std::vector<TokenId>& prompt, std::int64_t n_tokens, Proposer& proposer,
                   std::int64_t budget) {
    RankTarget& target = engine.target();
    return logged_generation(target, prompt, n_tokens, proposer, budget, {.temperature = 0.9, .seed = 4},
                             engine.model().config().vocab);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Least ring that a placement can have: two of the largest block, and two of the largest expert.
std::size_t least_ring(const ModelFiles& files, const Placement& placement) {
    const std::vector<KvLayout> kv = files.config().kv_layouts(files.config().kv_dtype);
    std::size_t block = placement.chunks.empty() ? 0 : largest_chunk_bytes(kv);
    const auto items = cut_weight_items(files.weights(), WeightRounding::None, placement.max_item_bytes);
    std::size_t expert = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (placement.items.empty() || !placement.items[i]) continue;
        std::size_t& largest = items[i].expert == kNoExpert ? block : expert;
        largest = std::max(largest, items[i].bytes);
    }
    return 2 * TransferRing::slot_bytes(block) + 2 * TransferRing::slot_bytes(expert);
}

Placement random_placement(const ModelFiles& files, std::int64_t n_chunks, std::mt19937& random) {
    Placement placement;
    const std::size_t sizes[] = {2048, 8192, 20000, kUncutItems};
    placement.max_item_bytes = sizes[random() % 4];
    const std::size_t n_items =
        cut_weight_items(files.weights(), WeightRounding::None, placement.max_item_bytes).size();
    const unsigned weights = random() % 3;  // none, some, all
    for (std::size_t i = 0; i < n_items; ++i)
        placement.items.push_back(weights == 2 || (weights == 1 && random() % 2 == 0));
    if (random() % 3 > 0 || weights == 0)
        for (std::int64_t layer = 0; layer < files.config().n_layers(); ++layer)
            placement.chunks.push_back(
                random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<unsigned>(n_chunks + 1)));
    const std::size_t least = least_ring(files, placement);
    placement.ring_bytes = least + (random() % 3 == 0 ? 0 : random() % (8 * least));
    return placement;
}

TEST(Streaming, EveryPlacementGivesTheBitsOfTheResidentModel) {
    std::mt19937 random(11);
    struct Types {
        DType weights, kv;
    };
    for (const Types types : {Types{DType::F32, DType::F16}, Types{DType::BF16, DType::F16},
                              Types{DType::Q8_0, DType::F16}, Types{DType::F32, DType::Q8_0}}) {
        for (const std::int64_t window : {0, 300}) {
            const auto files =
                make_tiny_model({.n_layers = 3, .window = window, .weight_type = types.weights, .kv_dtype = types.kv});
            for (const std::size_t n_prompt : {1, 255, 256, 257, 513, 1300}) {
                NoProposer none;
                Engine resident(*files, {}, 2048, 1);
                const Generated plain = generate(resident, prompt_of(n_prompt), 300, none, 1);
                for (int round = 0; round < 3; ++round) {
                    const Placement placement = random_placement(*files, 8, random);
                    const std::int64_t budget = round % 2 == 0 ? 1 : 40;
                    ScriptedProposer scripted(plain.text, 0.7, 5);
                    Proposer& proposer = budget == 1 ? static_cast<Proposer&>(none) : scripted;
                    Engine streamed(*files, placement, 2048, budget, {.n_threads = 1 + round % 2});
                    const Generated found = generate(streamed, prompt_of(n_prompt), 300, proposer, budget);
                    ASSERT_EQ(found.text, plain.text) << "prompt " << n_prompt << ", round " << round;
                    ASSERT_TRUE(same_bits(found.logits, plain.logits)) << "prompt " << n_prompt << ", round " << round;
                }
            }
        }
    }
}

// Everything streams, and the ring holds a layer and the KV of one: a prompt reads each weight once.
TEST(Streaming, APromptByLayersReadsEachWeightOnce) {
    const auto files = make_tiny_model({.n_layers = 3});
    NoProposer none;
    Engine resident(*files, {}, 2048, 1);
    const Generated plain = generate(resident, prompt_of(1700), 3, none, 1);
    Placement placement{.max_item_bytes = 16384};
    const auto items = cut_weight_items(files->weights(), WeightRounding::None, placement.max_item_bytes);
    placement.items.assign(items.size(), true);
    std::size_t bytes = 0;
    for (const WeightItem& item : items) bytes += item.bytes;
    for (const bool kv : {false, true}) {
        placement.chunks.assign(kv ? 3 : 0, 1);
        placement.ring_bytes = std::size_t{1} << 20;
        Engine streamed(*files, placement, 2048, 1);
        ASSERT_TRUE(streamed.forward().runs_by_layer(streamed.cache(), 0, 1536, kPrefillChunkTokens));
        const Generated found = generate(streamed, prompt_of(1700), 1, none, 1);
        EXPECT_EQ(streamed.pass()->figures().weights_bytes, bytes);
        ASSERT_TRUE(same_bits(found.logits, std::vector<float>(plain.logits.begin(), plain.logits.begin() + 97)));
    }
}

// The ring holds a layer's weights and a few chunks, not the KV of a layer: weights still come once a prompt, and KV
// again for each piece; on from any position, with windows, some layers resident.
TEST(Streaming, APromptByLayersReadsKvAgainWhereALayersDoesNotFit) {
    std::mt19937 random(17);
    for (const std::int64_t window : {0, 700}) {
        const auto files = make_tiny_model({.n_layers = 3, .window = window});
        const std::size_t chunk = files->config().kv_layout(0, files->config().kv_dtype).chunk_bytes();
        Placement placement{.max_item_bytes = 16384};
        const auto items = cut_weight_items(files->weights(), WeightRounding::None, placement.max_item_bytes);
        placement.items.assign(items.size(), true);
        std::size_t bytes = 0;
        for (const WeightItem& item : items) bytes += item.bytes;
        const std::vector<std::vector<std::int64_t>> layouts =
            window == 0 ? std::vector<std::vector<std::int64_t>>{{0, 0, 0}, {3, 20, 1}}
                        : std::vector<std::vector<std::int64_t>>{{0, 20, 9}};
        for (const std::vector<std::int64_t>& chunks : layouts) {
            placement.chunks = chunks;
            NoProposer none;
            Engine resident(*files, {}, 5120, 1);
            // The least ring that takes a prompt by layers, and some more.
            placement.ring_bytes = least_ring(*files, placement);
            const auto by_layers = [&] {
                Engine engine(*files, placement, 5120, 1);
                return engine.forward().runs_by_layer(engine.cache(), 0, 4608, kPrefillChunkTokens);
            };
            while (!by_layers()) placement.ring_bytes += chunk;
            placement.ring_bytes += random() % 5 * chunk;
            Engine streamed(*files, placement, 5120, 1);
            const Generated plain = generate(resident, prompt_of(4700), 1, none, 1);
            const Generated found = generate(streamed, prompt_of(4700), 1, none, 1);
            ASSERT_EQ(streamed.pass()->figures().weights_bytes, bytes);
            ASSERT_TRUE(same_bits(found.logits, plain.logits));
            if (window == 0 && chunks[0] == 0 && chunks[1] == 0) {
                // The last layer reads for the pass alone; others for piece k its 2 k chunks, k = 1 .. 8, and the pass.
                EXPECT_EQ(streamed.pass()->figures().kv_bytes, (2 * (2 * 36 + 18) + 18) * chunk);
            }
            // On from where that text stands, and from inside a chunk.
            for (const std::int64_t keep : {std::int64_t{300}, std::int64_t{1000}, std::int64_t{512}}) {
                for (Engine* engine : {&resident, &streamed}) engine->cache().truncate(engine->forward().exec(), keep);
                std::vector<TokenId> prompt = prompt_of(static_cast<std::size_t>(keep));
                for (std::int64_t i = 0; i < 3000; ++i) prompt.push_back(static_cast<TokenId>(random() % 97));
                ASSERT_TRUE(streamed.forward().runs_by_layer(streamed.cache(), keep, 3072, kPrefillChunkTokens));
                const Generated a = generate(resident, prompt, 30, none, 1);
                const Generated b = generate(streamed, prompt, 30, none, 1);
                ASSERT_EQ(a.text, b.text) << keep;
                ASSERT_TRUE(same_bits(a.logits, b.logits)) << keep;
            }
        }
    }
}

// Chats cut texts back and go on from anywhere; sessions stop between passes.
TEST(Streaming, CutsAndContinuationsGiveTheBitsOfTheResidentModel) {
    const auto files = make_tiny_model({.n_layers = 2});
    std::mt19937 random(3);
    for (int round = 0; round < 12; ++round) {
        const Placement placement = random_placement(*files, 8, random);
        Engine resident(*files, {}, 2048, 8);
        Engine streamed(*files, placement, 2048, 8);
        std::vector<TokenId> prompt = prompt_of(100 + random() % 900);
        for (int turn = 0; turn < 5; ++turn) {
            NoProposer none;
            const std::int64_t n_tokens = 1 + random() % 300;
            const Generated a = generate(resident, prompt, n_tokens, none, 8);
            const Generated b = generate(streamed, prompt, n_tokens, none, 8);
            ASSERT_EQ(a.text, b.text) << "round " << round << ", turn " << turn;
            ASSERT_TRUE(same_bits(a.logits, b.logits));
            // A part of it stays, other words follow.
            const auto keep = static_cast<std::int64_t>(1 + random() % static_cast<unsigned>(a.text.size() - 1));
            for (Engine* engine : {&resident, &streamed})
                engine->cache().truncate(engine->forward().exec(), std::min(keep, engine->cache().n_committed()));
            prompt.assign(a.text.begin(), a.text.begin() + keep);
            for (unsigned i = 0; i < 1 + random() % 200; ++i) prompt.push_back(static_cast<TokenId>(random() % 97));
            if (prompt.size() > 1500) break;
        }
    }
}

void expect_cancelled_passes_do_no_harm(const TinyModelOptions& options) {
    const auto files = make_tiny_model(options);
    NoProposer none;
    Engine resident(*files, {}, 2048, 1);
    const Generated plain = generate(resident, prompt_of(1300), 40, none, 1);
    std::mt19937 random(8);
    for (int round = 0; round < 10; ++round) {
        const Placement placement = random_placement(*files, 8, random);
        Engine streamed(*files, placement, 2048, 1);
        Sampler sampler({.temperature = 0.9, .seed = 4}, 97);
        ExactVerifier verifier(sampler);
        RankTarget& target = streamed.target();
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(1300));
        std::atomic<bool> cancel = false;
        int calls = 0;
        const int cancel_at = static_cast<int>(random() % 6);
        const auto progress = [&](std::int64_t, std::int64_t) { cancel = calls++ == cancel_at; };
        std::int64_t left = 40;
        while (left > 0) {
            cancel = false;
            left -= std::ssize(loop.step(left, &cancel, progress));
        }
        ASSERT_EQ(loop.text(), plain.text) << "round " << round;
    }
}

TEST(Streaming, ACancelledPassLeavesEverythingUsable) {
    expect_cancelled_passes_do_no_harm({.n_layers = 3});
}

TEST(Streaming, ACancelledPassOfAMixtureLeavesEverythingUsable) {
    expect_cancelled_passes_do_no_harm(kMixture);
}

TEST(Streaming, ASessionsChunksComeBackAsTheyWere) {
    const auto files = make_tiny_model({.n_layers = 2});
    std::mt19937 random(21);
    for (int round = 0; round < 8; ++round) {
        NoProposer none;
        Engine first(*files, random_placement(*files, 8, random), 2048, 1);
        const Generated text = generate(first, prompt_of(400 + 100 * static_cast<std::size_t>(round)), 30, none, 1);
        const std::int64_t n = first.cache().n_committed();
        const std::size_t chunk_bytes = first.cache().layout(0).chunk_bytes();
        Engine second(*files, random_placement(*files, 8, random), 2048, 1);
        const auto read = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            std::vector<std::byte> bytes(chunk_bytes);
            first.cache().read_chunk(first.forward().exec(), layer, chunk, bytes.data());
            std::copy(bytes.begin(), bytes.end(), out);
        };
        const std::int64_t n_first = round % 2 * kChunkTokens;  // restored before the rest
        second.cache().restore(second.forward().exec(), 0, n_first, read);
        second.cache().restore(second.forward().exec(), n_first, n, read);
        ASSERT_EQ(second.cache().n_committed(), n);
        const Generated a = generate(first, text.text, 20, none, 1);
        const Generated b = generate(second, text.text, 20, none, 1);
        ASSERT_EQ(a.text, b.text) << "round " << round;
        ASSERT_TRUE(same_bits(a.logits, b.logits));
    }
}

TEST(Streaming, TheSelfCheckHolds) {
    const auto files = make_tiny_model({.n_layers = 2});
    NoProposer none;
    Engine resident(*files, {}, 2048, 1);
    const Generated plain = generate(resident, prompt_of(700), 60, none, 1);
    std::mt19937 random(5);
    for (int round = 0; round < 4; ++round) {
        Engine streamed(*files, random_placement(*files, 8, random), 2048, 16);
        DeviceSelfCheck check(streamed.model(), streamed.cache(), streamed.pass());
        ScriptedProposer scripted(plain.text, 0.8, 5);
        Sampler sampler({.temperature = 0.9, .seed = 4}, 97);
        ExactVerifier verifier(sampler);
        RankTarget& target = streamed.target();
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, scripted, {.budget = 16, .end_tokens = {}});
        loop.check_with(check);
        loop.begin(prompt_of(700));
        for (std::int64_t left = 60; left > 0;) left -= std::ssize(loop.step(left));
        EXPECT_EQ(loop.text(), plain.text);
        EXPECT_GE(check.figures().tokens, 60);
    }
}

// What constructors take is what their plans say, to the byte.
TEST(Streaming, DeviceBytesAreWhatWasAnnounced) {
    std::mt19937 random(17);
    const TinyModelOptions cases[] = {
        {.n_layers = 3, .weight_type = DType::F32},
        {.n_layers = 3, .weight_type = DType::Q8_0},
        {.n_layers = 3, .kv_dtype = DType::Q8_0},
        kMixture,
        {.n_layers = 3, .heads = {{4, 2, 16}, {8, 4, 32}, {3, 1, 10}}, .weight_type = DType::F32},
        {.n_layers = 3, .heads = {{3, 1, 10}, {8, 1, 32}, {4, 4, 16}}, .weight_type = DType::BF16}};
    for (const TinyModelOptions& options : cases) {
        const auto files = make_tiny_model(options);
        for (int round = 0; round < 8; ++round) {
            const Placement placement = random_placement(*files, 8, random);
            const std::int64_t budget = 1 + static_cast<std::int64_t>(random() % 60);
            Engine engine(*files, placement, 2048, budget);
            const auto items = cut_weight_items(files->weights(), WeightRounding::None, placement.max_item_bytes);
            std::size_t expected = Model::small_tensor_bytes(files->weights());
            for (std::size_t i = 0; i < items.size(); ++i)
                if (!placement.items[i]) expected += items[i].bytes;
            expected += KvCache::device_bytes(engine.model().kv_layouts(), 2048, SelfCheck::scratch_nodes_for(budget),
                                              placement.chunks);
            expected += Forward::device_bytes(files->config(), forward_limits_for(budget),
                                              placement.streams() ? Forward::Streaming::Yes : Forward::Streaming::No);
            if (placement.streams()) expected += placement.ring_bytes;
            EXPECT_EQ(engine.device().budget().used_bytes(), expected);
            // Kernels' own memory is announced as well: a run takes nothing beyond it.
            reserve_workspace(engine.device(), Forward::workspace_shapes(files->config(), engine.model().kv_dtype(),
                                                                         forward_limits_for(budget)));
            const std::size_t before = engine.device().budget().used_bytes();
            NoProposer none;
            static_cast<void>(generate(engine, prompt_of(700), 40, none, budget));
            EXPECT_EQ(engine.device().budget().peak_bytes(), before);
        }
    }
}

// A copy that fails or stands still is an error of the pass that needed it; the text goes on after it, KV that was lost
// on its way to the host included.
void expect_failed_copies_end_passes_alone(const TinyModelOptions& options) {
    const auto files = make_tiny_model(options);
    NoProposer none;
    Engine resident(*files, {}, 2048, 1);
    const Generated plain = generate(resident, prompt_of(600), 30, none, 1);
    std::mt19937 random(6);
    int failures = 0;
    int of_experts = 0;
    for (int round = 0; round < 12; ++round) {
        Placement placement = random_placement(*files, 8, random);
        // Of every other mixture experts alone stream, and one of their copies fails after the prompt.
        bool late = options.n_experts > 0 && round % 2 == 1;
        if (late) {
            const auto items = cut_weight_items(files->weights(), WeightRounding::None, placement.max_item_bytes);
            for (std::size_t i = 0; i < items.size(); ++i) placement.items[i] = items[i].expert != kNoExpert;
            placement.chunks.clear();
            placement.ring_bytes = static_cast<std::size_t>(1 + round % 3) * least_ring(*files, placement);
        }
        if (!placement.streams()) continue;
        CpuFaults faults{.stall_after = std::chrono::milliseconds(200)};
        Engine streamed(*files, placement, 2048, 1, {.faults = &faults});
        Sampler sampler({.temperature = 0.9, .seed = 4}, 97);
        ExactVerifier verifier(sampler);
        RankTarget& target = streamed.target();
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(600));
        const auto plant = [&] {
            (round % 3 == 0 ? faults.copies_until_stall : faults.copies_until_failure) =
                static_cast<std::int64_t>(1 + random() % 60);
        };
        if (!late) plant();
        int failures_here = 0;
        for (std::int64_t left = 30; left > 0;) {
            if (late && left < 30) {
                plant();
                late = false;
            }
            try {
                left -= std::ssize(loop.step(left));
            } catch (const Error& error) {
                ASSERT_LE(++failures_here, 1) << "round " << round << ": " << error.what();
                EXPECT_THAT(error.what(), testing::ContainsRegex("^(layer [012]|the LM head|KV): .*cpu, copies "));
                if (std::string_view(error.what()).find(": experts: ") != std::string_view::npos) ++of_experts;
            }
        }
        failures += failures_here;
        ASSERT_EQ(loop.text(), plain.text) << "round " << round;
    }
    EXPECT_GT(failures, 0);
    EXPECT_EQ(of_experts > 0, options.n_experts > 0);
}

TEST(Streaming, AFailedCopyEndsThePassAndNothingElse) {
    expect_failed_copies_end_passes_alone({.n_layers = 3});
}

TEST(Streaming, AFailedCopyOfAMixtureEndsThePassAndNothingElse) {
    expect_failed_copies_end_passes_alone(kMixture);
}

TEST(Streaming, ARingTooSmallIsRefused) {
    const auto files = make_tiny_model({});
    Placement placement{.max_item_bytes = 8192};
    placement.items.assign(cut_weight_items(files->weights(), WeightRounding::None, 8192).size(), true);
    placement.ring_bytes = least_ring(*files, placement) - 64;
    EXPECT_THROW(Engine(*files, placement, 2048, 1), OutOfBudget);
}

}  // namespace
}  // namespace slipstream
