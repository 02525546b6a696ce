// Layers as only some families have them: gates of the attention, queries that grow with the position, layers without
// RoPE, a normed embedding, norms after each half with an epsilon of their own, factors of residual stream and logits.
// Texts, logits and KV are those of the resident model wherever weights and KV are.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/expected_text.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 5;
constexpr std::size_t kRing = std::size_t{1} << 19;

std::unique_ptr<ModelFiles> varied_model(std::int64_t window = 300, DType type = DType::BF16) {
    return make_tiny_model(
        {.n_layers = kLayers, .window = window, .weight_type = type, .head_norms = true, .varied = true});
}

TEST(VariedLayers, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    for (const DType type : {DType::BF16, DType::Q8_0}) {
        const auto files = varied_model(300, type);
        for (const std::int64_t n_prompt : {3, 700}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 300 : 64;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing);
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            ASSERT_FALSE(kv.empty());
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {3, 2}, {1, 4}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                    SCOPED_TRACE(testing::PrintToString(split));
                    SplitEngine engine(*files, split, streams, {}, kRing);
                    expect_text(engine, one, n_prompt, n_tokens);
                    EXPECT_EQ(kv_of(*engine.target), kv);
                }
            }
            SplitEngine ring(*files, SplitKind::Layers, {2, 3}, Streams::Both, WindowedKv::Ring, SplitEngine::kContext,
                             kRing);
            expect_text(ring, one, n_prompt, n_tokens);
        }
    }
}

// The sums of several devices round otherwise than one device, but the same wherever weights and KV are.
TEST(VariedLayers, MatricesAreSplitByHeads) {
    const auto files = varied_model(300, DType::F32);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated of_one = plainly(*whole.target, prompt_of(700), 64);
    TensorEngine resident(*files, {1, 1}, Streams::Nothing);
    const Generated one = plainly(*resident.target, prompt_of(700), 64);
    EXPECT_EQ(one.text, of_one.text);
    for (const Streams streams : {Streams::Weights, Streams::Kv, Streams::Both}) {
        TensorEngine engine(*files, {1, 1}, streams);
        expect_text(engine, one, 700, 64);
    }
}

TEST(VariedLayers, APromptByLayersGivesTheBitsOfTheResidentModel) {
    const auto files = varied_model(700);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated one = plainly(*whole.target, prompt_of(2300), 3);
    SplitEngine engine(*files, {kLayers}, Streams::Both, {}, std::size_t{2} << 20);
    ASSERT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 2048, kPrefillChunkTokens));
    const Generated found = plainly(*engine.target, prompt_of(2300), 3);
    EXPECT_EQ(found.text, one.text);
    EXPECT_TRUE(same_bits(found.logits, one.logits));
    EXPECT_EQ(kv_of(*engine.target), kv_of(*whole.target));
}

TEST(VariedLayers, ASessionGoesOnOnAnotherSplit) {
    const auto files = varied_model();
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated all = plainly(*whole.target, prompt_of(600), 60);
    const TempFolder folder;
    const auto path = folder.path() / "session";
    SplitEngine first(*files, {2, 3}, Streams::Both, {}, kRing);
    const Generated begun = plainly(*first.target, prompt_of(600), 30);
    {
        SessionBegin begin = sample_begin();
        begin.context_tokens = SplitEngine::kContext;
        begin.kv_bytes = session_kv_bytes(first.target->shape().kv);
        begin.prompt = prompt_of(600);
        SessionFile session = SessionFile::create(path, begin);
        session.append_tokens(std::span(begun.text).subspan(600));
        EXPECT_EQ(SessionKv(session, *first.target, std::size_t{1} << 30).save(), std::nullopt);
    }
    for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
        SplitEngine second(*files, {4, 1}, streams, {}, kRing);
        auto session = SessionFile::open(path);
        EXPECT_EQ(SessionKv(*session, *second.target, std::size_t{1} << 30).restore(), 2 * kChunkTokens);
        NoProposer nothing;
        EXPECT_EQ(generate(*second.target, begun.text, 30, nothing, 1).text, all.text);
    }
}

TEST(VariedLayers, AViewOfTheWholeTextGivesTheBitsOfTheCache) {
    const auto files = varied_model(0);
    const ViewOptions whole{.budget_tokens = ViewedModel::kContext, .rebuild_tokens = 100, .growth_tokens = 128};
    CpuDevice device({.n_threads = 1});
    ViewedModel viewed(*files, device, whole, {1, 0, 2, 0, 8});
    viewed.feed(700);
    viewed.run_until_built();
    EXPECT_TRUE(viewed.same_logits());
    viewed.run(6, 3);
    EXPECT_TRUE(viewed.same_logits());
}

}  // namespace
}  // namespace slipstream
