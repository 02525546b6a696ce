#include "tools/options/sampling_options.h"

#include <array>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/options/settings.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SamplerOptions resolved(const GenerationDefaults& model, const OptionValues& values = {}) {
    static const std::array<CommandSpec, 1> commands{generate_command()};
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    const Settings settings(commands.front(), commands, values, nothing, {}, "");
    return resolve_sampling(sampling_settings(settings), model, {});
}

std::string error_of(const GenerationDefaults& model) {
    try {
        static_cast<void>(resolved(model));
    } catch (const FormatError& error) {
        return error.what();
    }
    return "";
}

TEST(SamplingOptions, OptionsGoBeforeTheModelBeforeTheBuiltIn) {
    GenerationDefaults model;
    EXPECT_EQ(resolved(model).top_k, 40);
    model.top_k = 7;
    EXPECT_EQ(resolved(model).top_k, 7);
    EXPECT_EQ(resolved(model, {{"top-k", {"3"}}}).top_k, 3);
}

TEST(SamplingOptions, PenaltiesBiasesAndWhatMinusOneMeans) {
    const SamplerOptions options = resolved({}, {{"presence-penalty", {"0.5"}},
                                                 {"frequency-penalty", {"-0.25"}},
                                                 {"repeat-last-n", {"-1"}},
                                                 {"top-k", {"-1"}},
                                                 {"seed", {"-1"}},
                                                 {"logit-bias", {"7=1.5,8-inf", "9+2"}}});
    EXPECT_EQ(options.presence_penalty, 0.5);
    EXPECT_EQ(options.frequency_penalty, -0.25);
    EXPECT_EQ(options.repeat_window, std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(options.top_k, 0);
    EXPECT_NE(options.seed, resolved({}, {{"seed", {"-1"}}}).seed) << "a random one each time";
    try {
        static_cast<void>(resolved({}, {{"seed", {"-2"}}}));
        ADD_FAILURE() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("from 0 to 2^64 - 1, or -1 for a random one, expected, found '-2'"));
    }
    EXPECT_EQ(logit_bias_text(options.bias), "7=1.5,8=-inf,9=2");
    EXPECT_EQ(parse_logit_bias(logit_bias_text(options.bias), "x"), options.bias);
    for (const char* wrong : {"", "7", "=1", "7=", "7=x", "7=inf", "7=2000", "-7=1", "7=nan", "7=1,", "7==1", "71.5x"})
        EXPECT_THROW(static_cast<void>(parse_logit_bias(wrong, "--logit-bias")), UsageError) << wrong;
    EXPECT_THROW(check_logit_bias({.bias = {{100, 1.0F}}}, 100), RequestError);
}

TEST(SamplingOptions, AModelsTopKOfMinusOneIsOff) {
    GenerationDefaults model;
    model.top_k = -1;
    EXPECT_EQ(resolved(model).top_k, 0);
}

TEST(SamplingOptions, AModelsValueOutOfRangeNamesTheFileAndTheRemedy) {
    GenerationDefaults model;
    model.top_p = 1.5;
    EXPECT_THAT(error_of(model), AllOf(HasSubstr("generation_config.json: top_p is 1.5"), HasSubstr("from 0 to 1"),
                                       HasSubstr("--top-p")));
    EXPECT_EQ(resolved(model, {{"top-p", {"0.5"}}}).top_p, 0.5);
    GenerationDefaults penalty;
    penalty.repeat_penalty = 0.0;
    EXPECT_THAT(error_of(penalty), AllOf(HasSubstr("repetition_penalty is 0"), HasSubstr("--repeat-penalty")));
    GenerationDefaults top_k;
    top_k.top_k = -2;
    EXPECT_THAT(error_of(top_k), AllOf(HasSubstr("top_k is -2"), HasSubstr("of at least 0"), HasSubstr("--top-k")));
    GenerationDefaults temperature;
    temperature.temperature = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(error_of(temperature), HasSubstr("--temperature"));
}

}  // namespace
}  // namespace slipstream::tools
