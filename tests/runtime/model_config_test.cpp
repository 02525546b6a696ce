// validate(): what a file may not claim.
#include "runtime/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/model.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

ModelConfig small() {
    ModelConfig config;
    config.d_model = 8;
    config.d_ff = 16;
    config.n_layers = 2;
    config.n_q_heads = 4;
    config.n_kv_heads = 2;
    config.head_dim = 4;
    config.n_rotated = 4;
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
    EXPECT_THAT(message([](ModelConfig& c) { c.n_layers = 1LL << 40; }), HasSubstr("n_layers"));
    EXPECT_THAT(message([](ModelConfig& c) { c.n_kv_heads = 3; }), HasSubstr("no multiple"));
    EXPECT_THAT(message([](ModelConfig& c) { c.n_rotated = 3; }), HasSubstr("rope turns"));
    EXPECT_THAT(message([](ModelConfig& c) { c.rms_eps = 0; }), HasSubstr("epsilon"));
    EXPECT_THAT(message([](ModelConfig& c) { c.rope_scaling.factor = 0; }), HasSubstr("factor"));
    EXPECT_THAT(message([](ModelConfig& c) { c.rope_scaling.frequency_divisors = {1.0}; }), HasSubstr("rope factors"));
    EXPECT_THAT(message([](ModelConfig& c) { c.rope_scaling.kind = RopeScalingKind::LongRope; }),
                HasSubstr("longrope"));
    EXPECT_THAT(message([](ModelConfig& c) { c.layer_window = {1}; }), HasSubstr("windows"));
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
                    c.n_layers = 4096;
                    c.n_q_heads = c.n_kv_heads = 1 << 14;
                    c.head_dim = 1024;
                    c.context_tokens = 1 << 28;
                }),
                HasSubstr("n_q_heads * head_dim is 16777216; 1 to 1048576"));
    EXPECT_THAT(with([](ModelConfig& c) {
                    c.n_layers = 4096;
                    c.n_q_heads = c.n_kv_heads = 1 << 10;
                    c.head_dim = 1024;
                }),
                HasSubstr("elements of KV cache a token (2 * n_layers * n_kv_heads * head_dim) is 8589934592"));
    EXPECT_THAT(with([](ModelConfig& c) {
                    c.n_layers = 4096;
                    c.d_model = 1 << 20;
                    c.d_ff = 1 << 22;
                }),
                HasSubstr("number of weights is"));
    // A model of 405 billion weights (Llama 3.1), in a context as long as may be asked for, is none of these.
    ModelConfig large = small();
    large.d_model = 16384;
    large.d_ff = 53248;
    large.n_layers = 126;
    large.n_q_heads = 128;
    large.n_kv_heads = 8;
    large.head_dim = large.n_rotated = 128;
    large.vocab = 128256;
    large.context_tokens = 1 << 28;
    EXPECT_NO_THROW(validate(large));
    EXPECT_EQ(kv_bytes(large, DType::F16, 1 << 28), (std::size_t{126} * 8 * 128 * 2 * 2) << 28);
}

TEST(ModelConfig, TheLargestKvCacheThatIsAcceptedFitsItsCount) {
    ModelConfig config = small();
    config.n_layers = 128;
    config.n_q_heads = config.n_kv_heads = 1 << 10;
    config.head_dim = 1024;
    config.context_tokens = 1 << 28;
    EXPECT_NO_THROW(validate(config));
    EXPECT_EQ(kv_bytes(config, DType::F32, config.context_tokens), std::size_t{1} << 58);
    EXPECT_EQ(kv_bytes(config, DType::F32, 1), std::size_t{1} << 38) << "whole chunks";
    EXPECT_EQ(kv_bytes(config, DType::F32, 0), 0U);
}

TEST(ModelConfig, KvBytesSaturate) {
    ModelConfig config = small();
    config.n_layers = 4096;
    config.n_kv_heads = 1 << 14;
    config.head_dim = 1024;
    EXPECT_EQ(kv_bytes(config, DType::F16, 1 << 28), kMaxKvBytes);
    EXPECT_EQ(kv_bytes(config, DType::F32, INT64_MAX), kMaxKvBytes);
    EXPECT_EQ(kv_bytes(small(), DType::F32, INT64_MAX), kMaxKvBytes);
}

}  // namespace
}  // namespace slipstream
