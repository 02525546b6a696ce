// Shapes by name against sizes of published files, and what a mixture of types gives each matrix.
#include "tools/plan/model_shapes.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/model/model.h"
#include "runtime/model/weight_items.h"
#include "runtime/pass/activations.h"
#include "runtime/plan/expert_bytes.h"

namespace slipstream::tools {
namespace {

double gigabytes(std::string_view shape, std::string_view quantisation) {
    const ModelConfig config = find_shape(shape).value();
    return static_cast<double>(file_bytes(shape_weights(config, find_quantisation(quantisation).value()), config)) /
           1e9;
}

struct PublishedFile {
    std::string_view shape;
    std::string_view quantisation;
    double gigabytes;
};

// As listed on the model cards that publish them: Llama 2 by TheBloke, Llama 3.1 and Qwen 2.5 by bartowski; tokenizers
// and keys take a few MB. The last has rows that are no multiple of 256, so other types take their place.
TEST(ModelShapes, HaveTheSizeOfPublishedFiles) {
    for (const PublishedFile& file : {PublishedFile{"llama2-7b", "Q4_K_M", 4.08},
                                      {"llama2-7b", "Q5_K_M", 4.78},
                                      {"llama2-7b", "Q6_K", 5.53},
                                      {"llama2-7b", "Q8_0", 7.16},
                                      {"llama2-13b", "Q4_K_M", 7.87},
                                      {"llama2-70b", "Q4_K_M", 41.42},
                                      {"llama2-70b", "Q5_K_M", 48.75},
                                      {"llama3.1-70b", "Q8_0", 74.98},
                                      {"llama3.1-70b", "Q6_K", 57.89},
                                      {"llama3.1-70b", "Q5_K_M", 49.95},
                                      {"llama3.1-70b", "Q5_K_S", 48.66},
                                      {"llama3.1-70b", "Q4_K_M", 42.52},
                                      {"llama3.1-70b", "Q4_K_S", 40.35},
                                      {"llama3.1-70b", "IQ4_XS", 37.90},
                                      {"llama3.1-70b", "Q3_K_L", 37.14},
                                      {"llama3.1-70b", "Q3_K_M", 34.27},
                                      {"llama3.1-70b", "Q3_K_S", 30.91},
                                      {"llama3.1-70b", "Q2_K", 26.38},
                                      {"qwen2.5-32b", "Q4_K_M", 19.85},
                                      {"qwen2.5-72b", "Q4_K_M", 47.42}})
        EXPECT_NEAR(gigabytes(file.shape, file.quantisation), file.gigabytes, 0.015)
            << file.shape << " " << file.quantisation;
}

// What one half of a layer uses, or what follows the layers, has memory that nothing else of it has; and what lives for
// the whole pass shares with none.
TEST(ModelShapes, ActivationsThatLiveTogetherDoNotOverlap) {
    const auto life_of = [](Activation which) {
        return which < Activation::Fold ? 0 : which < Activation::Gate ? 1 : which < Activation::Selected ? 2 : 3;
    };
    for (const std::string_view shape : {"qwen2.5-0.5b", "gemma4-12b", "qwen3.6-35b-a3b", "glm-4.5-air"}) {
        CpuDevice device({.n_threads = 1});
        const ModelConfig config = find_shape(shape).value();
        const Activations activations(
            device, config, {.n_tokens = 4, .n_logit_rows = 2, .max_drafts = 2, .streams = true, .pages = true});
        std::size_t n_pairs = 0;
        for (std::size_t i = 0; i < kActivations; ++i)
            for (std::size_t j = i + 1; j < kActivations; ++j) {
                const auto one = static_cast<Activation>(i), other = static_cast<Activation>(j);
                const std::span<std::byte> a = activations.memory(one), b = activations.memory(other);
                const bool live_together = life_of(one) == 0 || life_of(one) == life_of(other);
                if (a.empty() || b.empty() || !live_together) continue;
                ++n_pairs;
                EXPECT_TRUE(a.data() + a.size() <= b.data() || b.data() + b.size() <= a.data())
                    << shape << ": " << i << " and " << j;
            }
        EXPECT_GE(n_pairs, 40U) << shape;
    }
}

// In billions, as model cards state them, of the text model alone: to one or two decimals.
TEST(ModelShapes, HaveTheParametersOfPublishedModels) {
    struct Published {
        std::string_view shape;
        double billions, rounding;
    };
    for (const auto& [shape, billions, rounding] : {Published{"ministral3-3b", 3.4, 0.05},
                                                    {"ministral3-8b", 8.4, 0.1},
                                                    {"ministral3-14b", 13.5, 0.05},
                                                    {"phi4-14b", 14.66, 0.005},
                                                    {"phi4-mini", 3.84, 0.005},
                                                    {"smollm3-3b", 3.08, 0.005},
                                                    {"granite3.3-2b", 2.53, 0.005},
                                                    {"granite3.3-8b", 8.17, 0.005},
                                                    {"mistral-small3-24b", 23.57, 0.005},
                                                    {"gemma4-31b", 30.7, 0.05},
                                                    {"gemma4-12b", 11.9, 0.05},
                                                    {"gemma4-26b-a4b", 25.2, 0.05}}) {
        const ModelConfig config = find_shape(shape).value();
        const double n = static_cast<double>(file_bytes(shape_weights(config, Quantisation::BF16), config)) / 2.0;
        EXPECT_NEAR(n / 1e9, billions, rounding) << shape;
    }
}

TEST(ModelShapes, AreSoundModels) {
    for (const std::string_view name : shape_names()) {
        const ModelConfig config = find_shape(name).value();
        EXPECT_NO_THROW(validate(config)) << name;
        for (const std::string_view quantisation : quantisation_names()) {
            const ModelWeights weights = shape_weights(config, find_quantisation(quantisation).value());
            EXPECT_EQ(weights.layers.size(), static_cast<std::size_t>(config.n_layers()));
            // Rows are whole blocks: cutting them into items counts bytes.
            EXPECT_FALSE(cut_weight_items(weights, WeightRounding::None, 64U << 20).empty()) << name << quantisation;
            EXPECT_GT(Model::small_tensor_bytes(weights), 0U);
        }
    }
}

// Experts at 4 bit, in GB, and what a token reads of all weights.
TEST(ModelShapes, HaveTheExpertsOfPublishedModels) {
    const auto expect = [](std::string_view name, double experts, double read) {
        const ModelConfig config = find_shape(name).value();
        const ExpertBytes bytes = expert_bytes(config, shape_weights(config, Quantisation::Q4_K_M), 1.0);
        EXPECT_NEAR(static_cast<double>(bytes.experts) / 1e9, experts, 0.02 * experts) << name;
        EXPECT_NEAR(static_cast<double>(bytes.read) / 1e9, read, 0.02 * read) << name;
    };
    expect("qwen3-30b-a3b", 17.55, 1.92);
    expect("mixtral-8x7b", 27.3, 7.71);
    // Published GGUF files in MXFP4 have 12.11 and 63.39 GB, tokenizers included.
    for (const auto& [name, whole, experts] :
         {std::tuple{"gpt-oss-20b", 12.11, 10.18}, std::tuple{"gpt-oss-120b", 63.39, 61.1}}) {
        const ModelConfig config = find_shape(name).value();
        const ModelWeights weights = shape_weights(config, Quantisation::MXFP4);
        EXPECT_NEAR(static_cast<double>(file_bytes(weights, config)) / 1e9, whole, 0.03) << name;
        EXPECT_NEAR(static_cast<double>(expert_bytes(config, weights, 1.0).experts) / 1e9, experts, 0.03) << name;
        EXPECT_EQ(weights.layers[3].experts[7][TensorRole::Down].dtype, DType::MXFP4);
        EXPECT_EQ(weights.layers[3][TensorRole::Q].dtype, DType::Q8_0);
        EXPECT_EQ(weights.layers[3][TensorRole::V].dtype, DType::Q8_0);
        EXPECT_EQ(weights.layers[3][TensorRole::Sinks].cols(), 64);
        EXPECT_EQ(weights.layers[3][TensorRole::DownBias].rows(), config.experts(3).n_experts);
        EXPECT_EQ(config.window(0), 128);
        EXPECT_EQ(config.window(1), 0);
        EXPECT_FALSE(config.ropes.front().scaling.rounds_bounds);
    }
    const ModelConfig glm = find_shape("glm-4.5-air").value();
    EXPECT_TRUE(glm.experts(0).empty());
    EXPECT_EQ(glm.layers[0].feed_forward.d_ff, 10944);
    EXPECT_EQ(glm.layers[45].feed_forward.d_ff, 1408);
    // Rows of 1408 are no multiple of 256.
    const ModelWeights weights = shape_weights(glm, Quantisation::Q4_K_M);
    EXPECT_NE(weights.layers[9].experts[3][TensorRole::Down].dtype, DType::Q4_K);
}

TEST(ModelShapes, AreFoundWhateverTheCase) {
    EXPECT_EQ(find_shape("LLAMA-70B")->n_layers(), 80);
    EXPECT_EQ(find_quantisation("q4_k_m"), Quantisation::Q4_K_M);
    EXPECT_FALSE(find_shape("llama-71b"));
    EXPECT_FALSE(find_shape(""));
    EXPECT_FALSE(find_quantisation("Q4_K"));
}

TEST(ModelShapes, AMixtureGivesSomeMatricesMore) {
    const ModelConfig config = find_shape("llama-7b").value();
    const ModelWeights weights = shape_weights(config, Quantisation::Q4_K_M);
    std::string values;
    for (const LayerWeights& layer : weights.layers) {
        EXPECT_EQ(layer[TensorRole::Q].dtype, DType::Q4_K);
        EXPECT_EQ(layer[TensorRole::Up].dtype, DType::Q4_K);
        EXPECT_EQ(layer[TensorRole::V].dtype, layer[TensorRole::Down].dtype);
        values += layer[TensorRole::V].dtype == DType::Q6_K ? '6' : '4';
    }
    EXPECT_EQ(values, "66664464464464464464464464466666");
    EXPECT_EQ(weights.lm_head.dtype, DType::Q6_K);
    EXPECT_EQ(weights.token_embedding.dtype, DType::Q4_K);
    // Tied to the head, the embedding has its type.
    const ModelConfig tied = find_shape("llama3.2-1b").value();
    EXPECT_EQ(shape_weights(tied, Quantisation::Q4_K_M).token_embedding.dtype, DType::Q6_K);
    EXPECT_EQ(shape_weights(tied, Quantisation::BF16).lm_head.dtype, DType::BF16);
}

TEST(ModelShapes, TypesWhoseBlockDoesNotFitAreReplaced) {
    const ModelConfig config = find_shape("qwen2.5-0.5b").value();  // d_model 896
    const ModelWeights weights = shape_weights(config, Quantisation::Q4_K_M);
    EXPECT_EQ(weights.layers[0][TensorRole::Q].dtype, DType::Q5_0);
    EXPECT_EQ(weights.layers[0][TensorRole::V].dtype, DType::Q8_0);
    EXPECT_EQ(weights.layers[0][TensorRole::Down].dtype, DType::Q6_K);  // 4864 is a multiple of 256
    EXPECT_EQ(weights.lm_head.dtype, DType::Q8_0);
}

}  // namespace
}  // namespace slipstream::tools
