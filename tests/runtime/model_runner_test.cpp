// Two sequences of one runner, in turn: each has the text, logits and KV that it has alone, however the model is split
// and whatever streams.
#include "runtime/ranks/model_runner.h"

#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "kernels/host_collective.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/ranks/model_split.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = 1400;
constexpr std::int64_t kTreeBudget = 6;

struct Placed {
    const char* name;
    SplitKind kind;
    std::vector<std::int64_t> parts;
    bool streams;
};

/// A model on CPU devices, with a runner of two sequences.
class Runs {
public:
    Runs(const ModelFiles& files, const Placed& placed, std::size_t n_sequences) {
        const std::vector<ModelShard> shards = deal_parts(placed.kind, files.config(), files.weights(), placed.parts);
        std::vector<RunnerShard> of_runner;
        std::vector<Device*> pointers;
        for (const ModelShard& shard : shards) {
            devices_.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1}));
            pointers.push_back(devices_.back().get());
            LoadOptions options{.context_tokens = kContext, .shard = shard};
            options.placement = {.max_item_bytes = 8192, .arena = &arena_};
            if (placed.streams) {
                const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
                options.placement.streams.resize(cut_weight_items(thin, WeightRounding::None, 8192).size(), true);
            }
            models_.push_back(std::make_unique<Model>(files, *devices_.back(), options));
            RunnerShard& each = of_runner.emplace_back(RunnerShard{.model = models_.back().get(),
                                                                   .layers = shard.layers,
                                                                   .first_vocab = shard.first_vocab,
                                                                   .kv = {.resident_chunks = {}, .arena = &arena_},
                                                                   .ring_bytes = std::size_t{1} << 19});
            if (placed.streams)
                each.kv.resident_chunks.resize(static_cast<std::size_t>(models_.back()->config().n_layers()), 1);
        }
        const RunnerNeeds needs{.text_tokens = kContext,
                                .forward = forward_limits_for(kTreeBudget),
                                .scratch_nodes = SelfCheck::scratch_nodes_for(kTreeBudget),
                                .check_tokens = 64,
                                .n_sequences = n_sequences};
        std::unique_ptr<RankSums> sums;
        if (placed.kind == SplitKind::Tensor)
            sums = std::make_unique<HostCollective>(pointers, static_cast<std::size_t>(needs.forward.max_tokens) *
                                                                  row_bytes(DType::F32, files.config().d_model));
        runner_ = std::make_unique<ModelRunner>(of_runner, needs, &arena_, std::move(sums));
    }
    ModelRunner& runner() { return *runner_; }

private:
    PinnedArena arena_{{.limit_bytes = std::size_t{256} << 20, .page_lock = PageLock::Pageable}};
    std::vector<std::unique_ptr<CpuDevice>> devices_;
    std::vector<std::unique_ptr<Model>> models_;
    std::unique_ptr<ModelRunner> runner_;
};

/// A loop over a sequence of a runner, whose passes are checked.
class Text {
public:
    Text(ModelRunner& runner, std::size_t i, std::uint64_t seed, std::vector<TokenId> future = {})
        : sampler_({.temperature = 0.9, .seed = seed}, kTinyVocab),
          verifier_(sampler_),
          proposer_(std::move(future), 0.7, 3),
          log_(proposer_),
          check_(runner.check_target(i)),
          loop_(runner.sequence(i), verifier_, log_, {.budget = kTreeBudget, .end_tokens = {}}) {
        loop_.check_with(check_);
    }
    void begin(std::vector<TokenId> prompt) { loop_.begin(std::move(prompt)); }
    void step() { ASSERT_FALSE(loop_.step(8).empty()); }
    [[nodiscard]] std::int64_t size() const { return std::ssize(loop_.text()); }
    [[nodiscard]] Generated generated(std::int64_t n) const {
        Generated all{loop_.text(), log_.rows};
        all.text.resize(static_cast<std::size_t>(n));
        return all;
    }

private:
    Sampler sampler_;
    ExactVerifier verifier_;
    ScriptedProposer proposer_;
    LogitLog log_;
    SelfCheck check_;
    GenerationLoop loop_;
};

class TwoSequences : public testing::TestWithParam<Placed> {};

/// Layers of two kinds: plain ones, and those of Gemma with a window shorter than the prompts.
std::unique_ptr<ModelFiles> tiny_files(bool gemma) {
    return make_tiny_model({.n_layers = 4,
                            .n_q_heads = 6,
                            .n_kv_heads = 3,
                            .window = gemma ? 200 : 0,
                            .weight_type = DType::BF16,
                            .head_norms = gemma,
                            .gemma = gemma});
}

void expect_texts_as_alone(const ModelFiles& files, const Placed& placed) {
    const std::vector<TokenId> prompts[] = {prompt_of(700), prompt_of(270)};
    constexpr std::int64_t kTokens = 60;
    std::vector<TokenId> alone[2];
    for (std::size_t i = 0; i < 2; ++i) {
        Runs one(files, placed, 1);
        Text text(one.runner(), 0, 3 + i);
        text.begin(prompts[i]);
        while (text.size() < std::ssize(prompts[i]) + kTokens) text.step();
        alone[i] = text.generated(std::ssize(prompts[i]) + kTokens).text;
    }
    Runs both(files, placed, 2);
    Text texts[] = {Text(both.runner(), 0, 3, alone[0]), Text(both.runner(), 1, 4, alone[1])};
    std::mt19937 random(5);
    texts[0].begin(prompts[0]);
    texts[1].begin(prompts[1]);
    const auto size_of = [&](std::size_t i) { return std::ssize(prompts[i]) + kTokens; };
    while (texts[0].size() < size_of(0) || texts[1].size() < size_of(1)) {
        const std::size_t i = random() % 2;
        if (texts[i].size() < size_of(i)) texts[i].step();
    }
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(texts[i].generated(size_of(i)).text, alone[i]) << "sequence " << i;
    // One is cut back while the other has a schedule prepared, and begins anew.
    both.runner().sequence(0).keep_computed(0);
    texts[0].begin(prompts[0]);
    while (texts[0].size() < size_of(0)) texts[0].step();
    EXPECT_EQ(texts[0].generated(size_of(0)).text, alone[0]);
    EXPECT_EQ(both.runner().sequence(1).n_computed(), texts[1].size() - 1);
}

TEST_P(TwoSequences, InTurnHaveTheTextsThatEachHasAlone) {
    for (const bool gemma : {false, true}) {
        SCOPED_TRACE(gemma ? "Gemma" : "plain");
        expect_texts_as_alone(*tiny_files(gemma), GetParam());
    }
}

INSTANTIATE_TEST_SUITE_P(Placements, TwoSequences,
                         testing::Values(Placed{"OneDevice", SplitKind::Layers, {4}, false},
                                         Placed{"OneDeviceStreams", SplitKind::Layers, {4}, true},
                                         Placed{"Layers", SplitKind::Layers, {3, 1}, true},
                                         Placed{"Tensor", SplitKind::Tensor, {2, 1}, true}),
                         [](const auto& placed) { return std::string(placed.param.name); });

// Batch invariance of Gemma's layers: prefill chunks of 512 and of 1 token more, streamed or not, one device or two.
TEST(GemmaLayers, HaveOneTextWhereverTheyAre) {
    const auto files = tiny_files(true);
    const std::vector<TokenId> prompt = prompt_of(1025);
    std::vector<TokenId> first;
    for (const Placed& placed :
         {Placed{"", SplitKind::Layers, {4}, false}, Placed{"", SplitKind::Layers, {4}, true},
          Placed{"", SplitKind::Layers, {3, 1}, false}, Placed{"", SplitKind::Layers, {2, 2}, true}}) {
        Runs runs(*files, placed, 1);
        Text text(runs.runner(), 0, 7, first);
        text.begin(prompt);
        while (text.size() < std::ssize(prompt) + 50) text.step();
        const std::vector<TokenId> found = text.generated(std::ssize(prompt) + 50).text;
        if (first.empty()) first = found;
        EXPECT_EQ(found, first) << (placed.streams ? "streamed, " : "resident, ") << placed.parts.size() << " devices";
    }
}

}  // namespace
}  // namespace slipstream
