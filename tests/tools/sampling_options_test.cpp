#include "tools/options/sampling_options.h"

#include <array>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SamplerOptions resolved(const GenerationDefaults& model, const OptionValues& values = {}) {
    static const std::array<CommandSpec, 1> commands{generate_command()};
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    const Settings settings(commands.front(), commands, values, nothing, {}, "");
    Console console(Verbosity::Quiet, ColorUse::Never, std::nullopt);
    return resolve_sampling(sampling_settings(settings), model, settings, console);
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
