// rope_frequencies() against the numbers of transformers' ROPE_INIT_FUNCTIONS
// (tests/golden/models/rope_frequencies.txt, made by make_rope.py), and what no oracle is needed for: divisors, edges,
// refusals, the line for inspect.
#include "runtime/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "kernels/base/error.h"

namespace slipstream {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct GoldenCase {
    std::string name;
    RopeConfig rope;
    std::int64_t trained_context = 0;
    std::int64_t chosen = 0;  // context length that frequencies are fixed for
    double magnitude = 0;
    std::vector<double> frequencies;
};

RopeScalingKind kind_from(const std::string& text) {
    for (const auto kind : {RopeScalingKind::Linear, RopeScalingKind::Dynamic, RopeScalingKind::Llama3,
                            RopeScalingKind::Yarn, RopeScalingKind::LongRope})
        if (rope_scaling_name(kind) == text) return kind;
    EXPECT_EQ(text, "default");
    return RopeScalingKind::None;
}

std::vector<double> rest_of(std::istringstream& line) {
    std::vector<double> values;
    for (double value = 0; line >> value;) values.push_back(value);
    return values;
}

/// One "key value..." line of a block.
void apply(GoldenCase& golden, const std::string& key, std::istringstream& line) {
    RopeScaling& scaling = golden.rope.scaling;
    if (key == "case") {
        line >> golden.name;
        return;
    }
    if (key == "rope_type") {
        std::string text;
        line >> text;
        scaling.kind = kind_from(text);
        return;
    }
    const std::vector<double> values = rest_of(line);
    ASSERT_FALSE(values.empty()) << key;
    const double value = values.front();
    if (key == "n_rotated")
        golden.rope.n_rotated = static_cast<std::int64_t>(value);
    else if (key == "theta")
        golden.rope.theta = value;
    else if (key == "context_tokens")
        golden.trained_context = static_cast<std::int64_t>(value);
    else if (key == "chosen")
        golden.chosen = static_cast<std::int64_t>(value);
    else if (key == "factor")
        scaling.factor = value;
    else if (key == "original_max_position_embeddings")
        scaling.original_context = static_cast<std::int64_t>(value);
    else if (key == "low_freq_factor")
        scaling.low_freq_factor = value;
    else if (key == "high_freq_factor")
        scaling.high_freq_factor = value;
    else if (key == "beta_fast")
        scaling.beta_fast = value;
    else if (key == "beta_slow")
        scaling.beta_slow = value;
    else if (key == "attention_factor")
        scaling.attention_factor = value;
    else if (key == "mscale")
        scaling.mscale = value;
    else if (key == "mscale_all_dim")
        scaling.mscale_all_dim = value;
    else if (key == "short_factor")
        scaling.short_factors = values;
    else if (key == "long_factor")
        scaling.long_factors = values;
    else if (key == "magnitude")
        golden.magnitude = value;
    else if (key == "frequencies")
        golden.frequencies = values;
    else
        FAIL() << "unknown key " << key;
}

std::vector<GoldenCase> golden_cases() {
    std::vector<GoldenCase> cases;
    std::ifstream file(SLIPSTREAM_GOLDEN_DIR "/models/rope_frequencies.txt");
    GoldenCase current;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string key;
        line >> key;
        if (key == "#") continue;
        if (key == "end") {
            cases.push_back(current);
            current = GoldenCase();
        } else {
            apply(current, key, line);
        }
    }
    return cases;
}

constexpr std::int64_t kTrained = 4096;  // context that the model was trained for

RopeConfig plain(std::int64_t n_rotated) {
    return {.n_rotated = n_rotated};
}

TEST(Rope, AgreesWithTransformers) {
    const std::vector<GoldenCase> cases = golden_cases();
    ASSERT_EQ(cases.size(), 18U);
    for (const GoldenCase& golden : cases) {
        SCOPED_TRACE(golden.name);
        const RopeFrequencies found = rope_frequencies(golden.rope, golden.trained_context, golden.chosen);
        EXPECT_NEAR(found.magnitude, golden.magnitude, 1e-6 * golden.magnitude);
        ASSERT_EQ(found.inverse_frequency.size(), golden.frequencies.size());
        // The oracle works in float32: pow alone is off by an ulp or two, its exponent (up to 20 in log2) by as much.
        for (std::size_t i = 0; i < golden.frequencies.size(); ++i)
            EXPECT_NEAR(found.inverse_frequency[i], golden.frequencies[i], 2e-6 * golden.frequencies[i]) << i;
    }
}

TEST(Rope, FinishedDivisorsOfAGgufEqualTheLlama3Formula) {
    RopeConfig config = plain(128);
    config.theta = 500000;
    config.scaling.kind = RopeScalingKind::Llama3;
    config.scaling.factor = 8;
    config.scaling.original_context = 8192;
    const RopeFrequencies formula = rope_frequencies(config, kTrained, 4096);

    RopeConfig finished = plain(128);
    finished.theta = 500000;
    const RopeFrequencies unscaled = rope_frequencies(finished, kTrained, 4096);
    for (std::size_t i = 0; i < 64; ++i)
        finished.scaling.frequency_divisors.push_back(unscaled.inverse_frequency[i] / formula.inverse_frequency[i]);
    EXPECT_DOUBLE_EQ(finished.scaling.frequency_divisors.front(), 1.0);
    EXPECT_DOUBLE_EQ(finished.scaling.frequency_divisors.back(), 8.0);
    for (const auto kind : {RopeScalingKind::None, RopeScalingKind::Llama3}) {
        finished.scaling.kind = kind;
        finished.scaling.factor = kind == RopeScalingKind::None ? 1 : 8;
        const RopeFrequencies divided = rope_frequencies(finished, kTrained, 4096);
        for (std::size_t i = 0; i < 64; ++i)
            EXPECT_NEAR(divided.inverse_frequency[i], formula.inverse_frequency[i], 1e-15) << i;
    }
}

TEST(Rope, DivisorsMultiplyWithALinearFactor) {
    RopeConfig config = plain(4);
    config.scaling.kind = RopeScalingKind::Linear;
    config.scaling.factor = 2;
    config.scaling.frequency_divisors = {1, 5};
    const RopeFrequencies found = rope_frequencies(config, kTrained, 16);
    EXPECT_DOUBLE_EQ(found.inverse_frequency[0], 0.5);
    EXPECT_NEAR(found.inverse_frequency[1], 0.01 / 10, 1e-17);
}

TEST(Rope, DynamicGrowsWithTheChosenContextAndNotBelowTheModelsOwn) {
    RopeConfig config = plain(8);
    config.scaling.kind = RopeScalingKind::Dynamic;
    config.scaling.factor = 2;
    const auto slowest = [&](std::int64_t context) {
        return rope_frequencies(config, kTrained, context).inverse_frequency.back();
    };
    EXPECT_EQ(slowest(1), slowest(4096));
    EXPECT_GT(slowest(4096), slowest(4097));
    EXPECT_GT(slowest(8192), slowest(16384));
    config.scaling.original_context = 2048;  // where given, it stands before the model's context
    EXPECT_GT(slowest(2048), slowest(4096));
    config.n_rotated = 2;  // d - 2 = 0
    EXPECT_EQ(slowest(16384), 1.0);
}

TEST(Rope, RefusesParametersWithoutFrequencies) {
    const auto message = [](RopeScalingKind kind, auto change) {
        RopeConfig config = plain(4);
        config.scaling.kind = kind;
        config.scaling.factor = 4;
        config.scaling.original_context = 1024;
        config.scaling.short_factors = {1, 1};
        config.scaling.long_factors = {2, 2};
        change(config);
        try {
            (void)rope_frequencies(config, kTrained, 2048);
        } catch (const FormatError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    using testing::HasSubstr;
    for (const auto kind : {RopeScalingKind::Llama3, RopeScalingKind::Yarn, RopeScalingKind::LongRope})
        EXPECT_EQ(message(kind, [](RopeConfig&) {}), "accepted");
    EXPECT_THAT(message(RopeScalingKind::Llama3, [](RopeConfig& c) { c.scaling.high_freq_factor = 1; }),
                HasSubstr("high_freq_factor 1"));
    EXPECT_THAT(message(RopeScalingKind::Llama3, [](RopeConfig& c) { c.scaling.low_freq_factor = kNan; }),
                HasSubstr("low_freq_factor nan"));
    EXPECT_THAT(message(RopeScalingKind::Yarn, [](RopeConfig& c) { c.theta = 1; }), HasSubstr("theta 1"));
    EXPECT_THAT(message(RopeScalingKind::Yarn, [](RopeConfig& c) { c.scaling.beta_fast = -1; }),
                HasSubstr("beta_fast -1"));
    EXPECT_THAT(message(RopeScalingKind::Yarn, [](RopeConfig& c) { c.scaling.attention_factor = kNan; }),
                HasSubstr("magnitude nan"));
    EXPECT_THAT(
        message(RopeScalingKind::Yarn, [](RopeConfig& c) { c.scaling.mscale = kNan, c.scaling.mscale_all_dim = 1; }),
        HasSubstr("magnitude nan"));
    EXPECT_THAT(message(RopeScalingKind::LongRope, [](RopeConfig& c) { c.scaling.long_factors = {2}; }),
                HasSubstr("1 rope factors for 2"));
    EXPECT_THAT(message(RopeScalingKind::LongRope, [](RopeConfig& c) { c.scaling.original_context = 1; }),
                HasSubstr("no usable frequencies"));
    EXPECT_THAT(message(RopeScalingKind::LongRope, [](RopeConfig& c) { c.scaling.attention_factor = -1; }),
                HasSubstr("magnitude -1"));
}

TEST(Rope, DescribesItselfInOneLine) {
    RopeConfig config = plain(4);
    RopeScaling& scaling = config.scaling;
    EXPECT_EQ(describe_rope(config, kTrained, 4096), "none");
    scaling.frequency_divisors = {1, 8};
    EXPECT_EQ(describe_rope(config, kTrained, 4096), "none, 2 divisors from the file");
    scaling.frequency_divisors.clear();
    scaling.kind = RopeScalingKind::Linear;
    scaling.factor = 2.5;
    EXPECT_EQ(describe_rope(config, kTrained, 4096), "linear x2.5");
    scaling.kind = RopeScalingKind::Dynamic;
    scaling.factor = 2;
    EXPECT_EQ(describe_rope(config, kTrained, 8192), "dynamic x2 from 4096, fixed at 8192 (theta 10000 -> 90000)");
    scaling.original_context = 32768;
    scaling.factor = 4;
    scaling.kind = RopeScalingKind::Llama3;
    EXPECT_EQ(describe_rope(config, kTrained, 131072), "llama3 x4 from 32768");
    scaling.kind = RopeScalingKind::Yarn;
    EXPECT_EQ(describe_rope(config, kTrained, 131072), "yarn x4 from 32768, fixed at 131072");
    scaling.kind = RopeScalingKind::LongRope;
    EXPECT_EQ(describe_rope(config, kTrained, 131072), "longrope, long factors above 32768, fixed at 131072");
    EXPECT_EQ(describe_rope(config, kTrained, 32768), "longrope, short factors up to 32768, fixed at 32768");
}

}  // namespace
}  // namespace slipstream
