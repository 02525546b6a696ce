// validate(): what a file may not claim.
#include "runtime/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

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

}  // namespace
}  // namespace slipstream
