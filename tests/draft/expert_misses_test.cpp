// Texts over experts that a device lacks: whatever drafts, and whether the experts are copied, computed on the CPU, or
// both at random, texts, logits and KV are those of the resident model.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "kernels/cpu_device.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kLayers = 4;  // the first is dense
constexpr std::int32_t kExperts = 8;
constexpr std::size_t kRing = std::size_t{1} << 19;
constexpr std::int64_t kNewTokens = 24;

/// A target, a draft model, and the prompt: full of repeats, for n-grams.
struct Pair {
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<ModelFiles> draft_files =
        make_tiny_model({.d_ff = 64, .n_layers = 2, .weight_type = DType::F32, .seed = 9});
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    Model draft_model{*draft_files, device, {}};
    std::vector<TokenId> prompt;

    explicit Pair(DType type)
        : files(make_tiny_model({.n_layers = kLayers,
                                 .window = 300,
                                 .weight_type = type,
                                 .n_experts = kExperts,
                                 .n_chosen = 3,
                                 .shared_expert = true})) {
        for (TokenId i = 0; i < 280; ++i) prompt.push_back(i % 14 * 5 % 97);
    }

    [[nodiscard]] std::unique_ptr<Drafter> drafter(SourceKind source) const {
        DraftOptions options;
        options.sources = {source};
        options.max_budget = SplitEngine::kBudget;
        options.adapt_budget = false;
        DraftContext context;
        context.vocab = kTinyVocab;
        context.sampling = kTinySampling;
        context.files = files.get();
        context.draft_model = &draft_model;
        return make_drafter(options, context);
    }
};

/// {copied, computed on the CPU, split at random}.
ExpertSlots way_of(int way, std::int32_t slots) {
    if (way == 0) return ExpertSlots(slots);
    if (way == 1) return ExpertSlots(slots, ExpertMisses::Cpu);
    return ExpertSlots(slots, ExpertMisses::Copy, 5);
}

// {no slot, one, half, all} x {copy, CPU, shuffled} x {nothing drafts, n-grams, a model} x {1, 2, 3 threads} x
// {one device, layers over two}.
TEST(ExpertMisses, EveryPlaceAndDrafterGivesTheTextOfTheResidentModel) {
    std::int64_t n_offered = 0;
    for (const DType type : {DType::F32, DType::Q8_0}) {
        const Pair pair(type);
        SplitEngine whole(*pair.files, {kLayers}, Streams::Nothing);
        const Generated one = plainly(*whole.target, pair.prompt, kNewTokens);
        const std::vector<std::byte> kv = kv_of(*whole.target);
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {2, 2}}) {
            for (int way = 0; way < 3; ++way) {
                for (const std::int32_t slots : {0, 1, kExperts / 2, kExperts}) {
                    for (const int n_threads : {1, 2, 3}) {
                        SCOPED_TRACE(testing::Message() << testing::PrintToString(split) << ", way " << way << ", "
                                                        << slots << " slots, " << n_threads << " threads");
                        SplitEngine engine(*pair.files, split, Streams::Nothing, way_of(way, slots), kRing,
                                           std::vector<CpuDeviceOptions>(2, {.n_threads = n_threads}));
                        const auto expect_one = [&](Proposer& proposer, std::int64_t budget) {
                            engine.target->truncate(0);
                            const Generated found = generate(*engine.target, pair.prompt, kNewTokens, proposer, budget);
                            EXPECT_EQ(found.text, one.text);
                            EXPECT_TRUE(same_bits(found.logits, one.logits));
                            EXPECT_EQ(kv_of(*engine.target), kv);
                        };
                        NoProposer nothing;
                        expect_one(nothing, 1);
                        for (const SourceKind source : {SourceKind::Lookup, SourceKind::Model}) {
                            const std::unique_ptr<Drafter> drafter = pair.drafter(source);
                            expect_one(*drafter, SplitEngine::kBudget);
                            for (const SourceFigures& figures : drafter->figures()) n_offered += figures.offered;
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(n_offered, 1000);
}

}  // namespace
}  // namespace slipstream::draft
