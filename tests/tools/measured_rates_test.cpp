// The machine measured: figures that are related to each other, whatever they are.
#include "tools/engine/measured_rates.h"

#include <algorithm>
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/layers.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

constexpr std::size_t index(DType type) {
    return static_cast<std::size_t>(type);
}

TEST(MeasuredRates, OfAModelsTypesAndOfWhatItHasNot) {
    ModelConfig config = find_shape("110m").value();
    set_n_layers(config, 2);
    config.vocab = 2048;
    const ModelWeights weights = shape_weights(config, Quantisation::Q4_K_M);  // Q4_K and Q6_K
    const MachineRates measured =
        measure_rates({.config = &config, .weights = &weights, .kv_dtype = DType::F16, .n_threads = 2});
    const PassRates& rates = measured.rates;
    double slowest = 0.0;
    for (const DType type : {DType::Q4_K, DType::Q6_K}) {
        const double one = rates.weights[index(type)].seconds(1);
        EXPECT_GT(one, 1e-13) << dtype_name(type);  // 10 TB/s
        EXPECT_LT(one, 1e-6) << dtype_name(type);   // 1 MB/s
        // 64 tokens are more work than one, and less than 64 times one.
        EXPECT_GT(rates.weights[index(type)].seconds(64), one);
        slowest = std::max(slowest, one);
    }
    EXPECT_DOUBLE_EQ(rates.weights[index(DType::F32)].seconds(1), slowest);
    EXPECT_GT(rates.kv.seconds(3), 1e-13);
    EXPECT_GT(rates.kv.seconds(64 * 3), rates.kv.seconds(3));
    EXPECT_GT(rates.layer_seconds + rates.layer_token_seconds, 0.0);
    // The type with most bytes is what memory is counted in.
    EXPECT_DOUBLE_EQ(measured.memory_bytes_per_second, 1.0 / rates.weights[index(DType::Q4_K)].seconds(1));
    EXPECT_EQ(rates.host_bytes_per_second, measured.memory_bytes_per_second);
    EXPECT_GT(measured.copy_bytes_per_second, 1e6);
    EXPECT_GE(measured.host_bytes_per_copied_byte, 0.0);
}

// The ops of experts take all that a model of these families can ask of them.
TEST(MeasuredRates, OfMixtures) {
    for (const char* const name : {"gpt-oss-20b", "glm-4.5-air"}) {
        ModelConfig config = find_shape(name).value();
        set_n_layers(config, 2);
        config.vocab = 2048;
        for (LayerConfig& layer : config.layers) {
            layer.feed_forward.d_ff = std::min<std::int64_t>(layer.feed_forward.d_ff, 512);
            ExpertsConfig& experts = layer.feed_forward.experts;
            experts.n_experts = std::min<std::int64_t>(experts.n_experts, 16);
            experts.d_ff = std::min<std::int64_t>(experts.d_ff, 256);
            experts.weighting.score = ExpertScore::Sigmoid;  // shapes have Softmax
        }
        const ModelWeights weights = shape_weights(config, Quantisation::Q4_K_M);
        const RateQuestion question{.config = &config, .weights = &weights, .kv_dtype = DType::F16, .n_threads = 2};
        EXPECT_THAT(rates_key(question), HasSubstr("16 experts")) << name;
        const PassRates rates = measure_rates(question).rates;
        EXPECT_GT(rates.layer_seconds + rates.layer_token_seconds, 0.0) << name;
    }
    EXPECT_EQ(find_shape("glm-4.5-air")->layers.front().feed_forward.experts.n_experts, 0);
    EXPECT_GT(find_shape("gpt-oss-20b")->layers.front().feed_forward.activation_limit, 0.0F);
}

}  // namespace
}  // namespace slipstream::tools
