// validate(): what a file may not claim.
#include "runtime/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/model.h"
#include "runtime/plan/pass_items.h"
#include "tests/support/error_text.h"
#include "tests/support/layers.h"

namespace slipstream {
namespace {

ModelConfig small() {
    ModelConfig config;
    config.d_model = 8;
    set_layers(config, {.n_layers = 2, .d_ff = 16, .n_q_heads = 4, .n_kv_heads = 2, .head_dim = 4});
    config.vocab = 10;
    config.context_tokens = 64;
    return config;
}

TEST(ModelConfig, AcceptsAPlainModel) {
    EXPECT_NO_THROW(validate(small()));
}

TEST(ModelConfig, NamesTheFieldThatIsWrong) {
    const auto message = [](auto change) {
        ModelConfig config = small();
        change(config);
        try {
            validate(config);
        } catch (const FormatError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    using testing::HasSubstr;
    EXPECT_THAT(message([](ModelConfig& c) { c.d_model = 0; }), HasSubstr("d_model"));
    EXPECT_THAT(message([](ModelConfig& c) { c.vocab = -1; }), HasSubstr("vocabulary"));
    EXPECT_THAT(message([](ModelConfig& c) { set_n_layers(c, 4097); }), HasSubstr("n_layers"));
    EXPECT_THAT(message([](ModelConfig& c) { c.layers[1].attention().n_kv_heads = 3; }), HasSubstr("not a multiple"));
    EXPECT_THAT(message([](ModelConfig& c) { c.ropes[0].n_rotated = 3; }), HasSubstr("rope turns"));
    EXPECT_THAT(message([](ModelConfig& c) { c.rms_eps = 0; }), HasSubstr("epsilon"));
    EXPECT_THAT(message([](ModelConfig& c) { c.ropes[0].scaling.factor = 0; }), HasSubstr("factor"));
    EXPECT_THAT(message([](ModelConfig& c) { c.ropes[0].scaling.frequency_divisors = {1.0}; }),
                HasSubstr("rope factors"));
    EXPECT_THAT(message([](ModelConfig& c) { c.ropes[0].scaling.kind = RopeScalingKind::LongRope; }),
                HasSubstr("longrope"));
    EXPECT_THAT(message([](ModelConfig& c) { c.layers[1].attention().window = -1; }), HasSubstr("window of -1"));
    EXPECT_THAT(message([](ModelConfig& c) { c.layers.clear(); }), HasSubstr("n_layers is 0"));
}

TEST(ModelConfig, BoundsWhatPossibleSizesAmountToTogether) {
    const auto with = [](auto change) {
        ModelConfig config = small();
        change(config);
        return error_text<FormatError>([&] { validate(config); });
    };
    using testing::HasSubstr;
    // Each size is possible; the KV cache of this would take 2^64 bytes, which is 0.
    EXPECT_THAT(with([](ModelConfig& c) {
                    set_layers(c, {4096, 16, 1 << 14, 1 << 14, 1024});
                    c.context_tokens = 1 << 28;
                }),
                HasSubstr("n_q_heads * head_dim is 16777216; 1 to 1048576"));
    EXPECT_THAT(with([](ModelConfig& c) {
                    set_layers(c, {4096, 16, 1 << 10, 1 << 10, 1024});
                }),
                HasSubstr("elements of KV cache a token (2 * n_layers * n_kv_heads * head_dim) is 8589934592"));
    EXPECT_THAT(with([](ModelConfig& c) {
                    c.d_model = 1 << 20;
                    set_layers(c, {4096, 1 << 22, 4, 2, 4});
                }),
                HasSubstr("number of weights is"));
    // A model of 405 billion weights (Llama 3.1), in a context as long as may be asked for, is none of these.
    ModelConfig large = small();
    large.d_model = 16384;
    set_layers(large, {126, 53248, 128, 8, 128});
    large.vocab = 128256;
    large.context_tokens = 1 << 28;
    EXPECT_NO_THROW(validate(large));
    EXPECT_EQ(kv_bytes(large, DType::F16, 1 << 28), (std::size_t{126} * 8 * 128 * 2 * 2) << 28);
    EXPECT_EQ(kv_bytes(large, DType::Q8_0, 1 << 28), (std::size_t{126} * 8 * (128 + 8) * 2) << 28);
}

TEST(ModelConfig, TheLargestKvCacheThatIsAcceptedFitsItsCount) {
    ModelConfig config = small();
    set_layers(config, {128, 16, 1 << 10, 1 << 10, 1024});
    config.context_tokens = 1 << 28;
    EXPECT_NO_THROW(validate(config));
    EXPECT_EQ(kv_bytes(config, DType::F32, config.context_tokens), std::size_t{1} << 58);
    EXPECT_EQ(kv_bytes(config, DType::F32, 1), std::size_t{1} << 38) << "whole chunks";
    EXPECT_EQ(kv_bytes(config, DType::F32, 0), 0U);
}

TEST(ModelConfig, KvBytesSaturate) {
    ModelConfig config = small();
    set_layers(config, {4096, 16, 1 << 14, 1 << 14, 1024});
    EXPECT_EQ(kv_bytes(config, DType::F16, 1 << 28), kMaxKvBytes);
    EXPECT_EQ(kv_bytes(config, DType::F32, INT64_MAX), kMaxKvBytes);
    EXPECT_EQ(kv_bytes(small(), DType::F32, INT64_MAX), kMaxKvBytes);
}

}  // namespace
}  // namespace slipstream
