// A model as Gemma 4: layers that differ in heads, head size, rotary embedding and in having values of their own.
// Texts, logits and KV are those of the resident model on one device, wherever weights and KV are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/model/weight_items.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/expected_text.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/shard_check.h"
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
constexpr std::int64_t kWindow = 300;

std::unique_ptr<ModelFiles> gemma4_model(DType type = DType::BF16) {
    return make_tiny_model({.n_layers = kLayers,
                            .heads = {{8, 4, 16}, {8, 2, 32}, {8, 4, 16}, {8, 2, 32}, {8, 2, 32}},
                            .window = kWindow,
                            .weight_type = type,
                            .gemma4 = true});
}

// As 26B-A4B, but the first layer is dense.
std::unique_ptr<ModelFiles> gemma4_mixture(DType type) {
    return make_tiny_model({.n_layers = kLayers,
                            .heads = {{8, 4, 16}, {8, 2, 32}, {8, 4, 16}, {8, 2, 32}, {8, 2, 32}},
                            .window = kWindow,
                            .weight_type = type,
                            .gemma4 = true,
                            .n_experts = 9,
                            .n_chosen = 3});
}

TEST(Gemma4Placement, LayersWithoutValuesHaveNoItemForThem) {
    const auto files = gemma4_model();
    const auto items = cut_weight_items(files->weights(), WeightRounding::None, std::size_t{1} << 30);
    std::vector<int> n_values(kLayers, 0);
    for (const WeightItem& item : items)
        for (const WeightPart& part : item.parts)
            if (part.role == TensorRole::V) ++n_values.at(static_cast<std::size_t>(part.layer));
    EXPECT_THAT(n_values, testing::ElementsAre(1, 0, 1, 0, 0));
    EXPECT_EQ(items.size(), 2U * kLayers + 1);
}

TEST(Gemma4Placement, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    for (const auto& files : {gemma4_model(), gemma4_mixture(DType::BF16), gemma4_mixture(DType::Q8_0)}) {
        for (const std::int64_t n_prompt : {3, 700}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 300 : 60;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing);
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            ASSERT_FALSE(kv.empty());
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {2, 3}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                    SCOPED_TRACE(testing::Message()
                                 << testing::PrintToString(split) << ", " << static_cast<int>(streams));
                    SplitEngine engine(*files, split, streams, {}, kRing);
                    expect_text(engine, one, n_prompt, n_tokens);
                    EXPECT_EQ(kv_of(*engine.target), kv);
                }
            }
        }
    }
}

// Windowed layers keep rings, the others everything.
TEST(Gemma4Placement, RingsOfWindowedLayersGiveTheTextOfTheWholeCache) {
    const auto files = gemma4_model();
    const auto engine = [&](WindowedKv kv, Streams streams, const std::vector<std::int64_t>& parts) {
        return std::make_unique<SplitEngine>(*files, SplitKind::Layers, parts, streams, kv, 4096, kRing);
    };
    const auto whole = engine(WindowedKv::Whole, Streams::Nothing, {kLayers});
    const Generated expected = plainly(*whole->target, prompt_of(2560), 60);
    for (const Streams streams : {Streams::Nothing, Streams::Kv, Streams::Both}) {
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {3, 2}}) {
            if (streams == Streams::Kv && parts.size() > 1) continue;  // as Both
            const auto ring = engine(WindowedKv::Ring, streams, parts);
            EXPECT_EQ(ring->target->first_kept_chunk(1), 0);
            const Generated found = plainly(*ring->target, prompt_of(2560), 60);
            EXPECT_GT(ring->target->first_kept_chunk(0), 0);
            EXPECT_EQ(found.text, expected.text);
            EXPECT_TRUE(same_bits(found.logits, expected.logits)) << static_cast<int>(streams);
            EXPECT_EQ(kv_of(*ring->target), kv_of(*whole->target, *ring->target));
        }
    }
}

// Two groups: a rank has two kv heads of windowed layers and one of the others.
TEST(Gemma4Placement, MatricesAreSplitByGroupsOfKvHeads) {
    const auto files = gemma4_model(DType::F32);
    EXPECT_EQ(files->config().n_kv_groups(), 2);
    const std::vector<ModelShard> shards =
        deal_parts(SplitKind::Tensor, files->config(), files->weights(), std::vector<std::int64_t>{1, 1});
    const ModelConfig second = shard_config(files->config(), shards[1]);
    EXPECT_EQ(second.attention(0).n_kv_heads, 2);
    EXPECT_EQ(second.attention(0).n_q_heads, 4);
    EXPECT_EQ(second.attention(1).n_kv_heads, 1);
    EXPECT_EQ(second.attention(1).n_q_heads, 4);
    CpuDevice device({.n_threads = 1});
    expect_shards_make_the_whole(device, *files, shards);

    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        TensorEngine several(*files, {1, 1}, streams);
        EXPECT_TRUE(std::ranges::equal(several.target->shape().kv, whole.target->shape().kv));
        const Generated plain = plainly(*several.target, prompt_of(700), 40);
        several.target->truncate(0);
        ScriptedProposer scripted(plain.text, 0.7, 3);
        const Generated checked = generate(*several.target, prompt_of(700), 40, scripted, 9, several.plain);
        EXPECT_EQ(checked.text, plain.text);
        EXPECT_TRUE(same_bits(checked.logits, plain.logits));
        // Sums over ranks have another order than those of one device, and KV is rounded to F16.
        whole.target->truncate(0);
        const Generated one = plainly(*whole.target, prompt_of(700), 1);
        double error = 0.0;
        double size = 0.0;
        for (std::size_t i = 0; i < one.logits.size(); ++i) {
            error += std::pow(double{plain.logits[i]} - double{one.logits[i]}, 2);
            size += std::pow(double{one.logits[i]}, 2);
        }
        EXPECT_LT(error / size, 1e-5);
    }
}

TEST(Gemma4Placement, NoDeviceHasPartOfAKvHead) {
    const auto refused = [](const ModelFiles& files, std::size_t n_devices) {
        const std::vector<double> shares(n_devices, 1.0);
        return error_text<Unsupported>(
            [&] { static_cast<void>(parts_by_share(SplitKind::Tensor, files.config(), files.weights(), shares)); });
    };
    const auto one =
        make_tiny_model({.n_layers = 2, .heads = {{8, 4, 16}, {8, 1, 32}}, .window = kWindow, .gemma4 = true});
    EXPECT_EQ(refused(*one, 2),
              "layers with 1 to 4 kv heads cannot be shared among devices; split the model by layers");
    EXPECT_EQ(refused(*gemma4_model(), 3),
              "layers with 2 to 4 kv heads can be shared among at most 2 devices; name fewer, or split the model by "
              "layers");
}

void expect_session_goes_on(const ModelFiles& model) {
    const ModelFiles* const files = &model;
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
        EXPECT_EQ(kv_of(*second.target), kv_of(*first.target));
        NoProposer nothing;
        EXPECT_EQ(generate(*second.target, begun.text, 30, nothing, 1).text, all.text);
    }
}

TEST(Gemma4Placement, ASessionGoesOnOnAnotherSplit) {
    expect_session_goes_on(*gemma4_model());
    expect_session_goes_on(*gemma4_mixture(DType::BF16));
}

// The router reads another norm than the experts, so it does not see that theirs gives no finite numbers.
TEST(Gemma4Placement, ANormOfExpertsThatIsNotFiniteNamesLayerAndToken) {
    const auto files = gemma4_mixture(DType::Q8_0);
    const ConstTensorView norm = files->weights().layers[2][TensorRole::ExpertsNorm];
    const_cast<float*>(float_row(norm, 0))[5] = std::numeric_limits<float>::infinity();
    for (const Streams streams : {Streams::Nothing, Streams::Weights}) {
        SplitEngine engine(*files, {kLayers}, streams, {}, kRing);
        EXPECT_EQ(error_text<FormatError>([&] { static_cast<void>(plainly(*engine.target, prompt_of(3), 4)); }),
                  "layer 2: the norm before the experts gives the token at position 0 numbers that are not finite; the "
                  "model's weights are damaged, or their numbers overflow");
    }
}

TEST(Gemma4Placement, AViewOfTheWholeTextGivesTheBitsOfTheCache) {
    const auto files = gemma4_model();
    const ViewOptions whole{.budget_tokens = ViewedModel::kContext, .rebuild_tokens = 100, .growth_tokens = 128};
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {1, 0, 2, 0, 8}}) {
        CpuDevice device({.n_threads = 1});
        ViewedModel viewed(*files, device, whole, resident);
        viewed.feed(700);
        viewed.run_until_built();
        EXPECT_TRUE(viewed.same_logits());
        viewed.run(6, 3);
        EXPECT_TRUE(viewed.same_logits());
    }
}

}  // namespace
}  // namespace slipstream
