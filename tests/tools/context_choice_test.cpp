#include "tools/engine/context_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/layers.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kGiB = std::size_t{1} << 30;

// 8 kv heads of 128, 32 layers: 128 KiB a token in f16.
ModelConfig llama_8b() {
    ModelConfig config;
    set_layers(config, {.n_layers = 32, .d_ff = 14336, .n_q_heads = 32, .n_kv_heads = 8, .head_dim = 128});
    config.context_tokens = 131072;  // 16 GiB of KV
    return config;
}

TEST(ChooseContext, IsTheModelsOwnWhereItFits) {
    const ContextChoice choice = choose_context(llama_8b(), DType::F16, {}, 5 * kGiB, {64 * kGiB, 60 * kGiB});
    EXPECT_EQ(choice.tokens, 131072);
    EXPECT_FALSE(choice.reduced);
}

TEST(ChooseContext, IsWhatFitsOtherwise) {
    const ContextChoice choice =
        choose_context(llama_8b(), DType::F16, {}, 5 * kGiB, {16 * kGiB, 9 * kGiB + (100U << 20)});
    EXPECT_EQ(choice.tokens, 32768);  // 4 GiB are left for KV
    EXPECT_TRUE(choice.reduced);
}

TEST(ChooseContext, AnAskedOneIsServedOrRefused) {
    EXPECT_EQ(choose_context(llama_8b(), DType::F16, 8192, 5 * kGiB, {16 * kGiB, 9 * kGiB}).tokens, 8192);
    try {
        static_cast<void>(
            choose_context(llama_8b(), DType::F16, 65536, 5 * kGiB, {16 * kGiB, 9 * kGiB + (100U << 20)}));
        FAIL() << "8 GiB of KV in 4 GiB";
    } catch (const OutOfBudget& error) {
        EXPECT_THAT(error.what(), HasSubstr("--ctx 32768"));
    }
}

TEST(ChooseContext, AModelLargerThanMemoryIsRefused) {
    EXPECT_THROW(static_cast<void>(choose_context(llama_8b(), DType::F16, 512, 20 * kGiB, {16 * kGiB, 15 * kGiB})),
                 OutOfBudget);
    EXPECT_THROW(static_cast<void>(choose_context(llama_8b(), DType::F16, {}, 15 * kGiB, {16 * kGiB, 15 * kGiB})),
                 OutOfBudget);
}

TEST(ChooseContext, UnknownMemoryIsNotChecked) {
    EXPECT_EQ(choose_context(llama_8b(), DType::F16, {}, 500 * kGiB, {}).tokens, 131072);
}

TEST(ReductionNote, SaysWhereTheTextChangesWithTheContext) {
    ModelConfig config = llama_8b();
    EXPECT_THAT(reduction_note(config, 32768), AllOf(HasSubstr("131072"), HasSubstr("32768"), HasSubstr("(--ctx)")));
    config.ropes.front().scaling.kind = RopeScalingKind::Dynamic;
    config.ropes.front().scaling.factor = 4.0;
    config.ropes.front().scaling.original_context = 8192;
    EXPECT_THAT(reduction_note(config, 32768), AllOf(HasSubstr("dynamic rope scaling"), HasSubstr("give --ctx")));
    EXPECT_THAT(reduction_note(config, 131072), Not(HasSubstr("rope")));
    // YaRN's frequencies follow from its factor alone.
    config.ropes.front().scaling.kind = RopeScalingKind::Yarn;
    EXPECT_THAT(reduction_note(config, 32768), Not(HasSubstr("rope")));
    config.ropes.front().scaling.kind = RopeScalingKind::LongRope;
    config.ropes.front().scaling.short_factors.assign(64, 1.0);
    config.ropes.front().scaling.long_factors.assign(64, 2.0);
    EXPECT_THAT(reduction_note(config, 32768), Not(HasSubstr("rope")));  // still the long factors
    EXPECT_THAT(reduction_note(config, 4096), HasSubstr("longrope rope scaling"));
}

}  // namespace
}  // namespace slipstream::tools
