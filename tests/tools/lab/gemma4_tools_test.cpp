// Gemma 4 in plans, random files and the line of layers that `inspect` prints.
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/formats/model_files.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/rope.h"
#include "tests/tools/temporary_folder.h"
#include "tools/cli/layer_pattern.h"
#include "tools/engine/sampling_choice.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/plan/model_shapes.h"
#include "tools/plan/plan_report.h"

namespace slipstream::tools {
namespace {

PlanReport plan_of(std::string_view shape, std::int64_t context_tokens) {
    PlanRequest asked;
    asked.model = planned_shape(shape, find_shape(shape).value(), Quantisation::Q4_K_M);
    asked.kv_dtype = asked.model.config.kv_dtype;
    asked.profile = find_profile("2x4090");
    asked.hardware = profile_hardware(asked.profile.value(), asked.model.config, asked.kv_dtype);
    asked.context_tokens = context_tokens;
    return make_plan_report(asked);
}

double parameters(std::string_view shape) {
    const ModelConfig config = find_shape(shape).value();
    return static_cast<double>(file_bytes(shape_weights(config, Quantisation::BF16), config)) / 2.0;
}

TEST(Gemma4Shapes, HaveTheSizesOfThePublishedModels) {
    const ModelConfig large = find_shape("gemma4-31b").value();
    EXPECT_EQ(
        layer_pattern(large),
        "10 x [5: window 1024, 32/16 heads of 256, theta 10000; 1: full, 32/4 heads of 512, theta 1000000, values "
        "from keys]");
    EXPECT_EQ(layer_pattern(find_shape("gemma4-12b").value()),
              "8 x [5: window 1024, 16/8 heads of 256, theta 10000; 1: full, 16/1 heads of 512, theta 1000000, values "
              "from keys]");
    const ModelConfig mixture = find_shape("gemma4-26b-a4b").value();
    EXPECT_EQ(layer_pattern(mixture),
              "5 x [5: window 1024, 16/8 heads of 256, theta 10000; 1: full, 16/2 heads of 512, theta 1000000, values "
              "from keys]");
    for (const LayerConfig& layer : mixture.layers) {
        EXPECT_EQ(layer.feed_forward.d_ff, 2112);
        EXPECT_EQ(layer.feed_forward.experts,
                  (ExpertsConfig{
                      .n_experts = 128, .n_chosen = 8, .d_ff = 704, .router_norm_scale = 1.0F / std::sqrt(2816.0F)}));
    }
    EXPECT_EQ(large.n_kv_groups(), 4);
    EXPECT_EQ(find_shape("gemma4-12b")->n_kv_groups(), 1);
    EXPECT_EQ(large.ropes[0].n_fixed_pairs, 192);
    EXPECT_EQ(large.logit_softcap, 30.0F);
    // Without vision and audio.
    EXPECT_NEAR(parameters("gemma4-31b"), 30.7e9, 0.1e9);
    EXPECT_NEAR(parameters("gemma4-12b"), 11.9e9, 0.2e9);
    EXPECT_NEAR(parameters("gemma4-26b-a4b"), 25.2e9, 0.1e9);
}

// Ten layers keep the KV of 512 chunks of 256 positions, K and V of 4 heads of 512 in F16 each; 50 a ring of 12 chunks
// of 16 heads of 256.
TEST(Gemma4Shapes, APlanCountsTheKvOfEachLayer) {
    const std::size_t full = 2 * 256 * 4 * 512 * 2;
    const std::size_t windowed = 2 * 256 * 16 * 256 * 2;
    EXPECT_EQ(plan_of("gemma4-31b", 131072).kv_bytes(), 10 * 512 * full + 50 * 12 * windowed);
    EXPECT_EQ(plan_of("gemma4-12b", 131072).kv_bytes(), 8 * 512 * full / 4 + 40 * 12 * windowed / 2);
}

TEST(Gemma4Shapes, ARandomFileIsTheShape) {
    const TemporaryFolder folder;
    RandomModelOptions options{.config = *find_shape("gemma4-12b", 2), .quantisation = Quantisation::Q4_0};
    options.config.vocab = 512;
    options.config.d_model = 64;
    for (LayerConfig& layer : options.config.layers) layer.feed_forward.d_ff = 96;
    const std::filesystem::path path = folder.path() / "model.gguf";
    write_random_model(path, options);
    EXPECT_EQ(std::filesystem::file_size(path), random_model_bytes(options));
    const auto files = ModelFiles::open(path);
    const ModelConfig& read = files->config();
    ASSERT_EQ(read.n_layers(), 2);
    EXPECT_EQ(layer_pattern(read), layer_pattern(options.config));
    for (std::int64_t layer = 0; layer < 2; ++layer)
        EXPECT_EQ(read.attention(layer), options.config.attention(layer)) << layer;
    EXPECT_EQ(rope_frequencies(read, 4096), rope_frequencies(options.config, 4096));
    EXPECT_EQ(read.logit_softcap, 30.0F);
    const ModelWeights weights = files->weights();
    EXPECT_GT(weights.layers[0][TensorRole::V].rank, 0);
    EXPECT_EQ(weights.layers[1][TensorRole::V].rank, 0);
    EXPECT_EQ(weights.layers[1][TensorRole::OutputScale].cols(), 1);
}

TEST(Gemma4Shapes, ARandomFileOfTheMixtureIsTheShape) {
    const TemporaryFolder folder;
    RandomModelOptions options{.config = *find_shape("gemma4-26b-a4b", 2), .quantisation = Quantisation::Q4_0};
    options.config.vocab = 512;
    options.config.d_model = 64;
    for (LayerConfig& layer : options.config.layers) {
        layer.feed_forward.d_ff = 96;
        layer.feed_forward.experts = {.n_experts = 5, .n_chosen = 3, .d_ff = 160, .router_norm_scale = 0.125F};
    }
    const std::filesystem::path path = folder.path() / "model.gguf";
    write_random_model(path, options);
    EXPECT_EQ(std::filesystem::file_size(path), random_model_bytes(options));
    const auto files = ModelFiles::open(path);
    const ModelConfig& read = files->config();
    EXPECT_EQ(layer_pattern(read), layer_pattern(options.config));
    const ModelWeights weights = files->weights();
    for (std::size_t layer = 0; layer < 2; ++layer) {
        EXPECT_EQ(read.layers[layer].feed_forward, options.config.layers[layer].feed_forward);
        const LayerWeights& found = weights.layers[layer];
        EXPECT_EQ(found[TensorRole::Up].rows(), 96);
        EXPECT_EQ(found.experts.at(4)[TensorRole::Up].rows(), 160);
        for (const TensorRole role : {TensorRole::RouterNorm, TensorRole::ExpertsNorm, TensorRole::SharedPostNorm,
                                      TensorRole::ExpertsPostNorm, TensorRole::FfnPostNorm})
            EXPECT_EQ(found[role].cols(), 64);
        EXPECT_EQ(found[TensorRole::ExpertScales].cols(), 5);
    }
}

// What the model suppresses is a bias of minus infinity, before the user's own biases.
TEST(Gemma4Sampling, SuppressedTokensHaveABias) {
    const GenerationDefaults model{.suppressed_tokens = {7, 5}};
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    const SamplerOptions plain = resolve_sampling({.seed = 1}, model, {});
    EXPECT_EQ(plain.bias, (std::vector<TokenBias>{{7, kNever}, {5, kNever}}));
    const SamplerOptions chosen = resolve_sampling({.bias = std::vector<TokenBias>{{5, 2.0F}}, .seed = 1}, model, {});
    EXPECT_EQ(chosen.bias, (std::vector<TokenBias>{{7, kNever}, {5, kNever}, {5, 2.0F}}));
    std::vector<float> logits(10, 0.0F);
    logits[7] = 9.0F;
    logits[3] = 1.0F;
    SamplerOptions greedy = plain;
    greedy.temperature = 0.0;
    EXPECT_EQ(Sampler(greedy, 10).sample(logits, 0, {}), 3);
}

TEST(LayerPattern, SaysRunsAndPeriods) {
    EXPECT_EQ(layer_pattern(find_shape("llama-7b").value()), "32: full, 32/32 heads of 128");
    EXPECT_EQ(layer_pattern(find_shape("gemma3-1b").value()),
              "4 x [5: window 512, 4/1 heads of 256, theta 10000; 1: full, 4/1 heads of 256, theta 10000], then 2: "
              "window 512, 4/1 heads of 256, theta 10000");
    ModelConfig config = find_shape("llama-7b", 3).value();
    config.layers[1].attention().window = 7;
    EXPECT_EQ(layer_pattern(config),
              "1: full, 32/32 heads of 128; 1: window 7, 32/32 heads of 128; 1: full, 32/32 heads of 128");
}

}  // namespace
}  // namespace slipstream::tools
