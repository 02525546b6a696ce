// Whole models on the emulated machine: the same texts and the same bits resident, streamed and with guessing, under
// every timing of streams; logits near the CPU's; and whatever else reads what a device holds.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/tables/model_ngrams.h"
#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/model_runner.h"
#include "schedule.h"
#include "tests/support/device_self_check.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/shard_check.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;

constexpr std::int64_t kBudget = 8;
constexpr std::size_t kArenaBytes = std::size_t{64} << 20;

/// What a run is to differ in, and not to show.
struct Way {
    Timing timing = Timing::AtOnce;
    bool streams_weights = false;
    bool streams_kv = false;
    std::int64_t context = 1024;
    bool has_blas = true;
};

std::vector<TokenId> prompt_of(std::size_t n) {
    std::vector<TokenId> prompt(n);
    for (std::size_t i = 0; i < n; ++i) prompt[i] = static_cast<TokenId>((i * 31 + i / 7 + 7) % 97);
    return prompt;
}

/// A model on a card with all that runs it.
class Engine {
public:
    Engine(const ModelFiles& files, const Way& way)
        : machine_({.timing = way.timing, .has_blas = way.has_blas}),
          device_(machine_.table(), {.memory_bytes = std::size_t{256} << 20, .n_threads = 2}),
          arena_({.limit_bytes = kArenaBytes, .device = &device_}),
          model_(files, device_, load_options(files, way)),
          runner_(
              shards(way),
              {.text_tokens = way.context, .forward = limits(), .scratch_nodes = SelfCheck::scratch_nodes_for(kBudget)},
              &arena_) {}

    static ForwardLimits limits() { return forward_limits_for(kBudget); }

    Machine& machine() { return machine_; }
    CudaDevice& device() { return device_; }
    Model& model() { return model_; }
    KvCache& cache() { return runner_.cache(); }
    Forward& forward() { return runner_.forward(); }
    RankTarget& target() { return runner_.target(); }
    PassStream* pass() { return runner_.stream(); }

private:
    std::vector<RunnerShard> shards(const Way& way) {
        reserve_workspace(device_, Forward::workspace_shapes(model_.config(), model_.kv_dtype(), limits()));
        RunnerShard shard{
            .model = &model_, .kv = {.resident_chunks = {}, .arena = &arena_}, .ring_bytes = std::size_t{2} << 20};
        if (way.streams_kv) shard.kv.resident_chunks.resize(static_cast<std::size_t>(model_.config().n_layers()));
        return {shard};
    }
    LoadOptions load_options(const ModelFiles& files, const Way& way) {
        LoadOptions options{.context_tokens = way.context};
        if (!way.streams_weights) return options;
        options.placement = {.max_item_bytes = 20000, .arena = &arena_};
        const std::size_t n = cut_weight_items(files.weights(), WeightRounding::None, 20000).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 != 0);
        return options;
    }

    Machine machine_;
    CudaDevice device_;
    PinnedArena arena_;
    Model model_;
    ModelRunner runner_;
};

Generated generate(Engine& engine, const std::vector<TokenId>& prompt, std::int64_t n_tokens, Proposer& proposer,
                   const SamplerOptions& sampling, SelfCheck* check = nullptr) {
    RankTarget& target = engine.target();
    return logged_generation(target, prompt, n_tokens, proposer, kBudget, sampling, engine.model().config().vocab,
                             check);
}

// The cache behind a prompt that was, for all that follows, fed: noise is as good, and quick.
void fill(Engine& engine, std::int64_t n_tokens) {
    fill_cache(engine.cache(), engine.forward().exec(), n_tokens, 7, {});
}

Generated plain_text(const ModelFiles& files, const std::vector<TokenId>& prompt, std::int64_t n,
                     const SamplerOptions& sampling, std::int64_t n_filled = 0) {
    Engine engine(files, {});
    fill(engine, n_filled);
    NoProposer none;
    return generate(engine, prompt, n, none, sampling);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr SamplerOptions kGreedy{.temperature = 0.0};
const SamplerOptions kSampled{.temperature = 0.9, .seed = 4};

// Greedy and sampled; resident, streamed; plain and with trees of guesses; every timing: one text, one set of bits.
TEST(EmulatedModel, EveryWayGivesTheSameBits) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    const std::vector<TokenId> prompt = prompt_of(250);  // the text goes over a border of chunks
    for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
        const Generated expected = plain_text(*files, prompt, 14, sampling, 240);
        ASSERT_EQ(expected.text.size(), 264U);
        for (const float logit : expected.logits) ASSERT_TRUE(std::isfinite(logit));
        for (const Timing timing : kTimings) {
            for (const auto& [weights, kv] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
                Engine engine(*files, {.timing = timing, .streams_weights = weights, .streams_kv = kv});
                fill(engine, 240);
                ScriptedProposer proposer(expected.text, 0.7, 3);
                const Generated found = generate(engine, prompt, 14, proposer, sampling);
                EXPECT_EQ(found.text, expected.text) << static_cast<int>(timing) << weights << kv;
                EXPECT_TRUE(same_bits(found.logits, expected.logits)) << static_cast<int>(timing) << weights << kv;
                EXPECT_EQ(engine.machine().n_pageable_copies(), 0);
                EXPECT_LT(proposer.n_proposed, 14);  // passes that committed more than one
            }
        }
    }
}

// The same with a cache in q8, whose steps have codes and scales.
TEST(EmulatedModel, EveryWayOverAnEightBitCacheGivesTheSameBits) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16, .kv_dtype = DType::Q8_0});
    const std::vector<TokenId> prompt = prompt_of(250);
    const Generated expected = plain_text(*files, prompt, 14, kSampled, 240);
    const auto in_f16 = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    EXPECT_FALSE(same_bits(plain_text(*in_f16, prompt, 14, kSampled, 240).logits, expected.logits));
    for (const float logit : expected.logits) ASSERT_TRUE(std::isfinite(logit));
    for (const Timing timing : kTimings)
        for (const bool streams : {false, true}) {
            Engine engine(*files, {.timing = timing, .streams_weights = streams, .streams_kv = streams});
            fill(engine, 240);
            ScriptedProposer proposer(expected.text, 0.7, 3);
            const Generated found = generate(engine, prompt, 14, proposer, kSampled);
            EXPECT_EQ(found.text, expected.text) << static_cast<int>(timing) << streams;
            EXPECT_TRUE(same_bits(found.logits, expected.logits)) << static_cast<int>(timing) << streams;
            EXPECT_LT(proposer.n_proposed, 14);
        }
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scoped(schedule);
        Engine engine(*files, {.timing = Timing::Latest, .streams_kv = true});
        fill(engine, 240);
        ScriptedProposer proposer(expected.text, 0.7, 9);
        const Generated found = generate(engine, prompt, 14, proposer, kSampled);
        EXPECT_EQ(found.text, expected.text);
        EXPECT_TRUE(same_bits(found.logits, expected.logits)) << emulation::schedule_name(schedule);
    }
}

// The order in which blocks run their threads, and when their own copies land, do not show either.
TEST(EmulatedModel, SchedulesOfBlocksGiveTheSameBits) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::Q8_0});
    const std::vector<TokenId> prompt = prompt_of(250);
    const Generated expected = plain_text(*files, prompt, 8, kSampled, 240);
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scoped(schedule);
        Engine engine(*files, {.timing = Timing::Latest, .streams_weights = true});
        fill(engine, 240);
        ScriptedProposer proposer(expected.text, 0.7, 9);
        const Generated found = generate(engine, prompt, 8, proposer, kSampled);
        EXPECT_EQ(found.text, expected.text);
        EXPECT_TRUE(same_bits(found.logits, expected.logits));
    }
}

// A prompt of several prefill chunks through a model that streams goes layer by layer; KV streams in and out on the
// way.
TEST(EmulatedModel, LongPromptsGoThroughLayerByLayer) {
    const auto files = make_tiny_model({.d_model = 32,
                                        .d_ff = 64,
                                        .n_layers = 3,
                                        .n_q_heads = 2,
                                        .n_kv_heads = 1,
                                        .head_dim = 64,
                                        .weight_type = DType::Q8_0});
    const std::vector<TokenId> prompt = prompt_of(530);
    const Generated expected = plain_text(*files, prompt, 3, kGreedy);
    for (const Timing timing : {Timing::Latest, Timing::CopiesEarly}) {
        Engine engine(*files, {.timing = timing, .streams_weights = true, .streams_kv = true});
        ASSERT_TRUE(engine.forward().runs_by_layer(engine.cache(), 0, 512, 512));
        NoProposer none;
        const Generated found = generate(engine, prompt, 3, none, kGreedy);
        EXPECT_EQ(found.text, expected.text);
        EXPECT_TRUE(same_bits(found.logits, expected.logits));
        EXPECT_GT(engine.pass()->figures().weights_bytes, 0U);
        EXPECT_GT(engine.device().link_in().bytes, 0U);
        EXPECT_GT(engine.device().link_out().bytes, 0U);
        EXPECT_EQ(engine.machine().n_pageable_copies(), 0);
    }
}

// Of more prefill chunks than there are buffers for hidden states: copies that run ahead of a layer's computing must
// not take a buffer before it is read, in the last layer either, which hands nothing on.
TEST(EmulatedModel, PromptsOfManyPrefillChunksGoThroughLayerByLayer) {
    const auto files = make_tiny_model({.d_model = 32,
                                        .d_ff = 64,
                                        .n_layers = 2,
                                        .n_q_heads = 2,
                                        .n_kv_heads = 1,
                                        .head_dim = 64,
                                        .weight_type = DType::Q8_0});
    const std::vector<TokenId> prompt = prompt_of(2060);
    NoProposer none;
    Generated expected;
    for (const Timing timing : {Timing::AtOnce, Timing::Latest, Timing::CopiesEarly})
        for (const bool streams_kv : {false, true}) {
            const bool streams = timing != Timing::AtOnce;
            if (!streams && streams_kv) continue;
            Engine engine(
                *files,
                {.timing = timing, .streams_weights = streams, .streams_kv = streams && streams_kv, .context = 2304});
            EXPECT_EQ(engine.forward().runs_by_layer(engine.cache(), 0, 2048, 512), streams);
            const Generated found = generate(engine, prompt, 2, none, kGreedy);
            if (!streams) expected = found;
            EXPECT_EQ(found.text, expected.text);
            EXPECT_TRUE(same_bits(found.logits, expected.logits)) << streams_kv;
        }
}

// What a prompt that is given up has left in the queues may still write into the ring when the next one begins.
TEST(EmulatedModel, APromptGivenUpLeavesNothingBehind) {
    const auto files = make_tiny_model({.d_model = 32,
                                        .d_ff = 64,
                                        .n_layers = 3,
                                        .n_q_heads = 2,
                                        .n_kv_heads = 1,
                                        .head_dim = 64,
                                        .weight_type = DType::Q8_0});
    const std::vector<TokenId> prompt = prompt_of(530);
    const Generated expected = plain_text(*files, prompt, 3, kGreedy);
    for (const Timing timing : {Timing::Latest, Timing::CopiesEarly})
        for (int cancel_at = 0; cancel_at < 6; ++cancel_at) {
            Engine engine(*files, {.timing = timing, .streams_weights = true, .streams_kv = true});
            Sampler sampler(kGreedy, engine.model().config().vocab);
            ExactVerifier verifier(sampler);
            NoProposer none;
            RankTarget& target = engine.target();
            Sequence sequence(target);
            GenerationLoop loop(sequence, verifier, none, {.budget = kBudget, .end_tokens = {}});
            loop.begin(prompt);
            std::atomic<bool> cancel = false;
            int n_calls = 0;
            const auto progress = [&](std::int64_t, std::int64_t) { cancel = n_calls++ == cancel_at; };
            for (std::int64_t left = 3; left > 0;) {
                cancel = false;
                left -= std::ssize(loop.step(left, &cancel, progress));
            }
            ASSERT_EQ(loop.text(), expected.text) << "given up at " << cancel_at;
        }
}

/// Logits behind the last tokens of a prompt, in one pass.
std::vector<float> logits_on(Device& device, const ModelFiles& files, const std::vector<TokenId>& prompt) {
    const Model model(files, device, {.context_tokens = 512});
    KvCache cache(device, model.kv_layouts(), 512, 512);
    Forward forward(model, {.max_tokens = 512, .max_logit_rows = 8});
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < prompt.size(); ++i)
        nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
    std::vector<std::int32_t> wanted;
    for (std::size_t i = prompt.size() - 8; i < prompt.size(); ++i) wanted.push_back(static_cast<std::int32_t>(i));
    const ConstTensorView logits = forward.run(cache, prompt, nodes, wanted);
    const float* first = float_row(logits, 0);
    return {first, first + logits.rows() * logits.cols()};
}

// Both round: the card's activations to bfloat16 or half, the CPU's to 8 bits for Q8_0. A product of n terms with
// relative errors e of random signs is off by e; a model of 2 layers is a chain of 11 such roundings that add up by
// their squares, times at most 2 where a norm divides by what has errors, too.
TEST(EmulatedModel, LogitsAreNearTheCpus) {
    struct Case {
        DType weights;
        std::int64_t head_dim;
        double rounding;  // of both sides' activations together, relative
    };
    for (const Case& of : {Case{DType::F32, 16, 0x1p-11}, Case{DType::F32, 64, 0x1p-8}, Case{DType::F16, 64, 0x1p-8},
                           Case{DType::BF16, 128, 0x1p-8}, Case{DType::Q8_0, 64, 0x1p-6}}) {
        const auto files = make_tiny_model({.head_dim = of.head_dim, .weight_type = of.weights});
        const std::vector<TokenId> prompt = prompt_of(70);
        CpuDevice cpu({.n_threads = 2});
        const std::vector<float> expected = logits_on(cpu, *files, prompt);
        std::vector<float> found;
        {
            const Machine machine({});
            CudaDevice device(machine.table(), {.memory_bytes = std::size_t{256} << 20});
            found = logits_on(device, *files, prompt);
        }
        ASSERT_EQ(found.size(), expected.size());
        double errors = 0.0;
        double squares = 0.0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            errors += std::pow(double{found[i]} - double{expected[i]}, 2);
            squares += std::pow(double{expected[i]}, 2);
        }
        const double bound = 2.0 * std::sqrt(11.0) * of.rounding;
        EXPECT_LT(std::sqrt(errors / squares), bound) << dtype_name(of.weights) << " " << of.head_dim;
        EXPECT_GT(errors, 0.0);
    }
}

TEST(EmulatedModel, TheSelfCheckIsSilent) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::F16});
    const std::vector<TokenId> prompt = prompt_of(40);
    const Generated expected = plain_text(*files, prompt, 10, kSampled);
    Engine engine(*files, {.timing = Timing::Latest, .streams_weights = true, .streams_kv = true});
    DeviceSelfCheck check(engine.model(), engine.cache(), engine.pass());
    ScriptedProposer proposer(expected.text, 0.7, 5);
    EXPECT_EQ(generate(engine, prompt, 10, proposer, kSampled, &check).text, expected.text);
    EXPECT_EQ(check.figures().tokens, 10);
}

// Packs are cut for each share when it is loaded: from the file's rows and columns, so that no pack is cut itself.
TEST(EmulatedModel, ShardsMakeTheWholeTogether) {
    for (const DType type : {DType::F32, DType::BF16, DType::Q8_0, DType::IQ4_NL, DType::MXFP4}) {
        const auto files = make_tiny_model(
            {.d_ff = 160, .n_layers = 1, .n_q_heads = 6, .n_kv_heads = 3, .head_dim = 32, .weight_type = type});
        Engine engine(*files, {.timing = Timing::Latest});
        const ModelShard shards[] = {{0, 2, 0, 96, 0, 30}, {2, 1, 96, 64, 30, 67}};
        expect_shards_make_the_whole(engine.device(), *files, shards);
    }
    // Blocks of 256 columns, V and down of another type.
    const auto files = make_tiny_model({.d_model = 256,
                                        .d_ff = 512,
                                        .n_layers = 1,
                                        .n_q_heads = 8,
                                        .n_kv_heads = 2,
                                        .head_dim = 64,
                                        .weight_type = DType::Q4_K,
                                        .v_type = DType::Q6_K});
    Engine engine(*files, {.timing = Timing::Latest});
    const ModelShard shards[] = {{0, 1, 0, 256, 0, 30}, {1, 1, 256, 256, 30, 67}};
    expect_shards_make_the_whole(engine.device(), *files, shards);
}

// What a session keeps: chunks out, and into a cache of another placement.
void expect_chunks_back(DType kv_dtype) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16, .kv_dtype = kv_dtype});
    const std::vector<TokenId> prompt = prompt_of(270);
    std::vector<std::vector<std::byte>> saved;  // [layers]: the first chunk
    Generated expected;
    {
        Engine engine(*files, {.timing = Timing::Latest});
        fill(engine, 256);
        NoProposer none;
        expected = generate(engine, prompt, 6, none, kGreedy);
        for (std::int64_t layer = 0; layer < engine.cache().n_layers(); ++layer) {
            saved.emplace_back(engine.cache().layout(layer).chunk_bytes());
            engine.cache().read_chunk(engine.forward().exec(), layer, 0, saved.back().data());
        }
    }
    for (const bool streams_kv : {false, true}) {
        Engine engine(*files, {.timing = Timing::Latest, .streams_kv = streams_kv});
        engine.cache().restore(
            engine.forward().exec(), 0, kChunkTokens,
            [&](std::int64_t layer, std::int64_t, std::byte* out) { std::ranges::copy(saved[layer], out); });
        NoProposer none;
        const Generated found = generate(engine, prompt, 6, none, kGreedy);
        EXPECT_EQ(found.text, expected.text);
        EXPECT_TRUE(same_bits(found.logits, expected.logits));
    }
}
TEST(EmulatedModel, ChunksComeBackFromASession) {
    for (const DType kv_dtype : {DType::F16, DType::Q8_0}) expect_chunks_back(kv_dtype);
}

// A cache filled with noise for benchmarks holds the same everywhere.
TEST(EmulatedModel, AFilledCacheIsTheSameInEveryPlacement) {
    for (const DType kv_dtype : {DType::F16, DType::Q8_0}) {
        const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16, .kv_dtype = kv_dtype});
        std::vector<float> first;
        for (const bool streams_kv : {false, true}) {
            Engine engine(*files, {.timing = Timing::Latest, .streams_kv = streams_kv});
            fill(engine, 530);
            NoProposer none;
            const Generated found = generate(engine, prompt_of(531), 2, none, kGreedy);
            for (const float logit : found.logits) ASSERT_TRUE(std::isfinite(logit));
            if (first.empty()) first = found.logits;
            EXPECT_TRUE(same_bits(found.logits, first));
        }
    }
}

// The whole drafter, a draft model among its sources, beside the target on one card.
TEST(EmulatedModel, ADraftModelOnTheSameCardChangesNothing) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    const auto small = make_tiny_model({.n_layers = 1, .head_dim = 64, .weight_type = DType::BF16});
    const std::vector<TokenId> prompt = prompt_of(30);
    for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
        const Generated expected = plain_text(*files, prompt, 12, sampling);
        for (const Timing timing : {Timing::Latest, Timing::CopiesEarly}) {
            Engine engine(*files, {.timing = timing, .streams_weights = true});
            const Model draft_model(*small, engine.device(),
                                    {.rounding = WeightRounding::Q8_0, .tag = MemoryTag::Draft});
            draft::DraftOptions options;
            options.sources = {draft::SourceKind::Model, draft::SourceKind::Context};
            options.max_budget = kBudget;
            options.adapt_budget = false;
            draft::DraftContext target;
            target.vocab = engine.model().config().vocab;
            target.sampling = sampling;
            target.draft_model = &draft_model;
            const auto drafter = draft::make_drafter(options, target);
            const Generated found = generate(engine, prompt, 12, *drafter, sampling);
            EXPECT_EQ(found.text, expected.text);
            EXPECT_TRUE(same_bits(found.logits, expected.logits));
            std::int64_t offered = 0;
            for (const draft::SourceFigures& source : drafter->figures()) offered += source.offered;
            EXPECT_GT(offered, 0);
        }
    }
}

// Exact products of floats on both; sums in another order.
TEST(EmulatedModel, TablesOutOfAModelAreNearTheCpus) {
    const auto files = make_tiny_model({.head_dim = 16, .weight_type = DType::F32});
    const draft::ModelNgramsOptions options{.k = 4};
    CpuDevice cpu({.n_threads = 2});
    const Model on_cpu(*files, cpu, {.context_tokens = 256});
    const auto expected = draft::build_model_ngrams(on_cpu, *files, options);
    const Machine machine({.timing = Timing::Latest});
    CudaDevice device(machine.table(), {.memory_bytes = std::size_t{256} << 20});
    const Model on_card(*files, device, {.context_tokens = 256});
    const auto found = draft::build_model_ngrams(on_card, *files, options);
    ASSERT_TRUE(expected && found);
    EXPECT_EQ(found->common.size(), 97U);
    EXPECT_EQ(found->common, expected->common);
    std::size_t n_same = 0;
    for (std::size_t i = 0; i < found->bigrams.tokens.size(); ++i)
        n_same += found->bigrams.tokens[i] == expected->bigrams.tokens[i] ? 1U : 0U;
    EXPECT_GT(n_same, found->bigrams.tokens.size() * 9 / 10);
}

// A prompt of two whole prefill chunks and a part of one; one slab and several items a matrix where weights stream.
std::unique_ptr<ModelFiles> prompt_model() {
    return make_tiny_model({.d_model = 32,
                            .d_ff = 160,
                            .n_layers = 2,
                            .n_q_heads = 2,
                            .n_kv_heads = 1,
                            .head_dim = 64,
                            .weight_type = DType::Q8_0});
}
constexpr std::int64_t kLongPrompt = 1230;
constexpr std::int64_t kLongContext = 1536;

// Whole prefill chunks go through what stands for cuBLASLt, the rest and what is generated through our kernels:
// alike in every placement, with and without guesses; and the bits tell that they do.
TEST(EmulatedPromptModel, EveryWayGivesTheSameBits) {
    const auto files = prompt_model();
    const std::vector<TokenId> prompt = prompt_of(kLongPrompt);
    for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
        Generated expected;
        {
            Engine engine(*files, {.context = kLongContext});
            NoProposer none;
            expected = generate(engine, prompt, 8, none, sampling);
            // Seven matrices a layer of one slab each, two prefill chunks.
            EXPECT_EQ(engine.machine().n_prompt_products(), 2 * 2 * 7);
            EXPECT_EQ(engine.device().instruction_form(), "sm_89x4+cublaslt-1");
        }
        for (const auto& [weights, kv] : {std::pair{false, false}, {true, false}, {true, true}}) {
            if (sampling.temperature > 0.0 && !kv) continue;
            Engine engine(
                *files,
                {.timing = Timing::Latest, .streams_weights = weights, .streams_kv = kv, .context = kLongContext});
            ScriptedProposer proposer(expected.text, 0.7, 3);
            const Generated found = generate(engine, prompt, 8, proposer, sampling);
            EXPECT_EQ(found.text, expected.text) << weights << kv;
            EXPECT_TRUE(same_bits(found.logits, expected.logits)) << weights << kv;
            EXPECT_GT(engine.machine().n_prompt_products(), 0);
        }
        if (sampling.temperature > 0.0) continue;
        Engine without(*files, {.context = kLongContext, .has_blas = false});
        NoProposer none;
        const Generated own = generate(without, prompt, 8, none, sampling);
        EXPECT_FALSE(same_bits(own.logits, expected.logits));
        EXPECT_EQ(without.machine().n_prompt_products(), 0);
        EXPECT_EQ(without.device().instruction_form(), "sm_89");
        EXPECT_NE(without.device().no_blas(), "");
    }
}

// A text that is resumed: its first chunks out of a session, the rest of the prompt as prompt, also where that begins
// inside a prefill chunk, and what was generated as it was generated.
TEST(EmulatedPromptModel, AResumedTextGoesOnWithTheSameBits) {
    const auto files = prompt_model();
    const std::vector<TokenId> prompt = prompt_of(kLongPrompt);
    constexpr std::int64_t kTokens = 10;
    Generated expected;
    std::vector<std::vector<std::byte>> saved;  // [chunks][layers]
    {
        Engine engine(*files, {.context = kLongContext});
        NoProposer none;
        expected = generate(engine, prompt, kTokens, none, kGreedy);
        for (std::int64_t chunk = 0; chunk < 4; ++chunk)
            for (std::int64_t layer = 0; layer < engine.cache().n_layers(); ++layer) {
                saved.emplace_back(engine.cache().layout(layer).chunk_bytes());
                engine.cache().read_chunk(engine.forward().exec(), layer, chunk, saved.back().data());
            }
    }
    const auto n_logits = static_cast<std::ptrdiff_t>(expected.logits.size() / kTokens);
    for (const bool streams : {false, true})
        for (const std::int64_t n_chunks : {0, 1, 3, 4})
            for (const std::int64_t n_resumed : {3, 0}) {
                if (n_resumed == 0 && n_chunks != 3) continue;
                if (streams == (n_chunks % 3 == 0) && n_resumed > 0) continue;  // each way for some
                Engine engine(*files, {.timing = Timing::Latest,
                                       .streams_weights = streams,
                                       .streams_kv = streams,
                                       .context = kLongContext});
                if (n_chunks > 0)
                    engine.cache().restore(engine.forward().exec(), 0, n_chunks * kChunkTokens,
                                           [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                                               std::ranges::copy(saved[chunk * engine.cache().n_layers() + layer], out);
                                           });
                Sampler sampler(kGreedy, engine.model().config().vocab);
                ExactVerifier verifier(sampler);
                ScriptedProposer proposer(expected.text, 0.7, 3);
                LogitLog log(proposer);
                RankTarget& target = engine.target();
                Sequence sequence(target);
                GenerationLoop loop(sequence, verifier, log, {.budget = kBudget, .end_tokens = {}});
                loop.resume({expected.text.begin(), expected.text.begin() + kLongPrompt + n_resumed}, kLongPrompt);
                for (std::int64_t left = kTokens - n_resumed; left > 0;) left -= std::ssize(loop.step(left));
                ASSERT_EQ(loop.text(), expected.text) << streams << " " << n_chunks;
                // Restored rows are known to be the prompt's, as those that were computed here.
                EXPECT_EQ(sequence.n_prefilled(), kLongPrompt / kPrefillChunkTokens * kPrefillChunkTokens);
                const std::vector<float> rest(expected.logits.begin() + n_logits * n_resumed, expected.logits.end());
                ASSERT_TRUE(same_bits(log.rows, rest)) << streams << " " << n_chunks << " " << n_resumed;
            }
}

// A conversation: the next prompt begins with the last one and its answer. What is kept of the cache is what the whole
// prompt would have made.
TEST(EmulatedPromptModel, RowsThatAreKeptAreThoseOfTheWholePrompt) {
    const auto files = prompt_model();
    const std::vector<TokenId> all = prompt_of(kLongPrompt);
    struct Turn {
        std::int64_t n_first, n_same, n_second, n_kept;
    };
    for (const Turn& turn : {Turn{600, 605, 1000, 605},       // no prefill chunk more
                             Turn{600, 605, 1100, 512},       // rows of the answer become prompt
                             Turn{1100, 1010, 1020, 512}}) {  // rows of a prompt become the end of one
        Engine engine(*files, {.timing = Timing::Latest, .context = kLongContext});
        NoProposer none;
        Sampler sampler(kGreedy, engine.model().config().vocab);
        ExactVerifier verifier(sampler);
        LogitLog log(none);
        RankTarget& target = engine.target();
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, log, {.budget = kBudget, .end_tokens = {}});
        const auto generate_more = [&](std::int64_t n_tokens) {
            while (n_tokens > 0) n_tokens -= std::ssize(loop.step(n_tokens));
        };
        loop.begin({all.begin(), all.begin() + turn.n_first});
        generate_more(8);
        std::vector<TokenId> second = loop.text();
        second.resize(static_cast<std::size_t>(turn.n_same));
        while (std::ssize(second) < turn.n_second) second.push_back(all[second.size()]);
        const std::int64_t n_kept = sequence.n_reusable(turn.n_same, turn.n_second);
        EXPECT_EQ(n_kept, turn.n_kept);
        sequence.keep_computed(n_kept);
        log.rows.clear();
        loop.begin(second);
        generate_more(3);
        const Generated found{loop.text(), log.rows};
        engine.cache().truncate(engine.forward().exec(), 0);
        const Generated afresh = generate(engine, second, 3, none, kGreedy);
        EXPECT_EQ(found.text, afresh.text) << turn.n_second;
        EXPECT_TRUE(same_bits(found.logits, afresh.logits)) << turn.n_second;
    }
}

// A prompt that ends with a prefill chunk, or a text that is cut back into the prompt, has other last rows than a
// longer one.
TEST(EmulatedPromptModel, ATextThatIsCutBackIsAsIfItHadNotGoneOn) {
    const auto files = prompt_model();
    const std::vector<TokenId> prompt = prompt_of(kLongPrompt);
    for (const std::int64_t cut : {std::int64_t{1024}, std::int64_t{700}}) {
        NoProposer none;
        Engine engine(*files, {.context = kLongContext});
        Sampler sampler(kGreedy, engine.model().config().vocab);
        ExactVerifier verifier(sampler);
        RankTarget& target = engine.target();
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, none, {.budget = kBudget, .end_tokens = {}});
        loop.begin(prompt);
        for (std::int64_t left = 5; left > 0;) left -= std::ssize(loop.step(left));
        loop.truncate(cut);
        const std::vector<TokenId> kept = loop.text();
        for (std::int64_t left = 4; left > 0;) left -= std::ssize(loop.step(left));
        const std::vector<TokenId> found = loop.text();
        std::vector<std::byte> chunk(engine.cache().layout(1).chunk_bytes());
        const auto last = (cut - 1) / kChunkTokens - 1;  // the last that is full
        engine.cache().read_chunk(engine.forward().exec(), 1, last, chunk.data());
        // The same prompt as far as it is left, and the same generated tokens behind it.
        engine.cache().truncate(engine.forward().exec(), 0);
        const std::int64_t n_prompt = std::min(cut, kLongPrompt);
        loop.resume(kept, n_prompt);
        for (std::int64_t left = 4; left > 0;) left -= std::ssize(loop.step(left));
        EXPECT_EQ(loop.text(), found) << cut;
        std::vector<std::byte> afresh(chunk.size());
        engine.cache().read_chunk(engine.forward().exec(), 1, last, afresh.data());
        EXPECT_EQ(std::memcmp(chunk.data(), afresh.data(), chunk.size()), 0) << cut;
    }
}

// Host memory of KV is registered extent by extent as the text grows, and no copy reaches from one into another, which
// a card refuses: also where copies of five chunks do not add up to sixteen.
TEST(EmulatedModel, CopiesOfKvStayWithinWhatIsRegisteredAtOnce) {
    const auto files =
        make_tiny_model({.head_dim = 64, .context_tokens = 20 * kChunkTokens, .weight_type = DType::BF16});
    const Machine machine({.timing = Timing::Latest});
    CudaDevice device(machine.table(), {.memory_bytes = std::size_t{256} << 20, .n_threads = 2});
    PinnedArena arena({.limit_bytes = kArenaBytes, .device = &device});
    const Model model(*files, device, {.context_tokens = 20 * kChunkTokens});
    KvCache cache(device, model.kv_layouts(), 20 * kChunkTokens, 512, {.resident_chunks = {0, 2}, .arena = &arena});
    const std::size_t chunk = cache.layout(0).chunk_bytes();
    PassStream pass(std::vector{PassReads{&model, &cache}}, arena, 20 * chunk);
    Forward forward(model, {.max_tokens = 1, .max_logit_rows = 1}, &pass);
    fill_cache(cache, forward.exec(), 17 * kChunkTokens + 10, 3);
    EXPECT_EQ(cache.host()->extents().brought_bytes(), (20 + 18) * chunk);
    EXPECT_EQ(arena.locked_bytes(), arena.used_bytes());
    for (int i = 0; i < 2; ++i) {
        const NodeId node = cache.add_node(kCommittedTip);
        const TokenId token = 5;
        const std::int32_t row = 0;
        EXPECT_FALSE(forward.run(cache, std::span(&token, 1), std::span(&node, 1), std::span(&row, 1), {}, {}).empty());
        cache.commit(forward.exec(), std::span(&node, 1));
    }
    EXPECT_EQ(pass.figures().kv_bytes, 2 * (17 + 15) * chunk);
    EXPECT_EQ(machine.n_pageable_copies(), 0);
}

// A layer with a sliding window keeps a ring of KV chunks, resident or streamed: logits over borders of chunks, and
// after a cut within the slack, are those over a cache that keeps everything.
TEST(EmulatedModel, RingsOfKvChunksGiveTheBitsOfTheWholeCache) {
    constexpr std::int64_t kRingContext = 13 * kChunkTokens;
    const auto files = make_tiny_model(
        {.n_layers = 3, .head_dim = 64, .context_tokens = kRingContext, .window = 40, .weight_type = DType::BF16});
    const std::vector<std::int64_t> windows = layer_windows(files->config());
    const auto logits_of = [&](const KvPlacement& kept) {
        const Machine machine({.timing = Timing::Latest});
        CudaDevice device(machine.table(), {.memory_bytes = std::size_t{256} << 20, .n_threads = 2});
        PinnedArena arena({.limit_bytes = kArenaBytes, .device = &device});
        const Model model(*files, device, {.context_tokens = kRingContext});
        KvPlacement placement = kept;
        placement.arena = &arena;
        KvCache cache(device, model.kv_layouts(), kRingContext, 512, placement);
        std::optional<PassStream> pass;
        if (cache.streams())
            pass.emplace(std::vector{PassReads{&model, &cache}}, arena, 20 * cache.layout(0).chunk_bytes());
        Forward forward(model, {.max_tokens = 8, .max_logit_rows = 8}, pass ? &*pass : nullptr);
        fill_cache(cache, forward.exec(), 12 * kChunkTokens - 3, 3);
        EXPECT_EQ(cache.first_kept_chunk(1), placement.windows.empty() ? 0 : 12 - 8 - 1);
        std::vector<float> all;
        for (const std::int64_t cut : {0, 0, 600, 0}) {
            if (cut > 0) cache.truncate(forward.exec(), cache.n_committed() - cut);
            std::vector<NodeId> nodes;
            for (int i = 0; i < 5; ++i) nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
            const std::vector<TokenId> tokens{5, 9, 14, 20, 27};
            const std::vector<std::int32_t> rows{0, 1, 2, 3, 4};
            const ConstTensorView logits = forward.run(cache, tokens, nodes, rows);
            for (const std::int32_t row : rows) {
                const auto* first = reinterpret_cast<const float*>(logits.row(row));
                all.insert(all.end(), first, first + logits.cols());
            }
            cache.commit(forward.exec(), nodes);
        }
        EXPECT_GT(cache.n_committed(), 11 * kChunkTokens - 600);
        return all;
    };
    const std::vector<float> whole = logits_of({});
    EXPECT_EQ(logits_of({.windows = windows}), whole);
    EXPECT_EQ(logits_of({.resident_chunks = {0, 0, 0}, .windows = windows}), whole);
    EXPECT_EQ(logits_of({.resident_chunks = {4, 99, 0}, .windows = windows}), whole);
}

// What is planned is what is taken: in steady state nothing is allocated on the card.
TEST(EmulatedModel, PassesTakeNoMemoryBeyondTheWorkspace) {
    const auto files = make_tiny_model({.head_dim = 64, .weight_type = DType::BF16});
    Engine engine(*files, {});
    {
        const Machine::Window window;  // no more than a look from outside
        const WorkspaceShapes shapes =
            Forward::workspace_shapes(engine.model().config(), engine.model().kv_dtype(), Engine::limits());
        EXPECT_EQ(workspace_bytes(engine.device(), shapes), engine.device().budget().used_bytes(MemoryTag::Workspace));
    }
    const std::size_t before = engine.device().budget().peak_bytes();
    NoProposer none;
    const Generated text = generate(engine, prompt_of(150), 3, none, kGreedy);
    ScriptedProposer proposer(text.text, 0.7, 3);
    engine.cache().truncate(engine.forward().exec(), 100);
    generate(engine, prompt_of(150), 3, proposer, kGreedy);
    EXPECT_EQ(engine.device().budget().peak_bytes(), before);
}

}  // namespace
}  // namespace slipstream
