#include "tools/options/sampling_options.h"

#include <random>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kModelSource = "the model's generation_config";

// What each value may be, wherever it comes from.
constexpr Range<double> kTemperature{0.0, 1000.0};
constexpr Range<std::int64_t> kTopK{0, std::numeric_limits<std::int64_t>::max()};
constexpr Range<double> kShare{0.0, 1.0};
constexpr Range<double> kRepeatPenalty{0.01, 100.0};

// One option: its name here, its name in generation_config.json, and its value on each level.
template <typename T>
struct Levels {
    std::string_view name;
    std::string_view key;
    Range<T> range;
    std::optional<T> chosen;
    std::optional<T> models_own;
    T built_in;
};

template <typename T>
T resolve(const Levels<T>& option, const Settings& settings, Console& console) {
    const T value = option.chosen.value_or(option.models_own.value_or(option.built_in));
    // Settings are checked where they are read; what is left is the model's.
    if (!(value >= option.range.lowest && value <= option.range.highest))
        throw FormatError(
            fmt::format("the model's generation_config.json: {} is {}; a value {} is served, override it by --{}",
                        option.key, value, limits_text(option.range), option.name));
    console.detail(
        settings.describe(option.name, fmt::format("{}", value), option.models_own ? kModelSource : "built in"));
    return value;
}

}  // namespace

std::vector<OptionSpec> sampling_option_specs() {
    return {
        {"temperature", "--temperature,--temp", "X",
         "0 takes the likeliest token, ties to the lowest id [the model's, 0.8]"},
        {"top-k", "--top-k", "N", "Draw among the N likeliest tokens; 0: all [the model's, 40]"},
        {"top-p", "--top-p", "X",
         "Draw among the likeliest that hold X of the probability; 1: all [the model's, 0.95]"},
        {"min-p", "--min-p", "X", "Draw among tokens at least X times as likely as the best; 0: all [the model's, 0]"},
        {"repeat-penalty", "--repeat-penalty", "X", "Weaken tokens of the last 64; 1: off [the model's, 1]"},
        {"seed", "-s,--seed", "N", "The same seed gives the same text [random, printed]"},
    };
}

SamplingSettings sampling_settings(const Settings& settings) {
    return {.temperature = settings.real("temperature", kTemperature),
            .top_k = settings.integer("top-k", kTopK),
            .top_p = settings.real("top-p", kShare),
            .min_p = settings.real("min-p", kShare),
            .repeat_penalty = settings.real("repeat-penalty", kRepeatPenalty),
            .seed = settings.unsigned_integer("seed")};
}

SamplerOptions resolve_sampling(const SamplingSettings& chosen, const GenerationDefaults& model,
                                const Settings& settings, Console& console) {
    const SamplerOptions built_in;
    // "do_sample": false is how files say greedy.
    const std::optional<double> models_temperature = model.do_sample == false ? 0.0 : model.temperature;
    const std::optional<std::int64_t> models_top_k = model.top_k == -1 ? 0 : model.top_k;
    SamplerOptions options;
    const auto choose = [&]<typename T>(const Levels<T>& levels) { return resolve(levels, settings, console); };
    options.temperature = choose(Levels<double>{"temperature", "temperature", kTemperature, chosen.temperature,
                                                models_temperature, built_in.temperature});
    options.top_k = choose(Levels<std::int64_t>{"top-k", "top_k", kTopK, chosen.top_k, models_top_k, built_in.top_k});
    options.top_p = choose(Levels<double>{"top-p", "top_p", kShare, chosen.top_p, model.top_p, built_in.top_p});
    options.min_p = choose(Levels<double>{"min-p", "min_p", kShare, chosen.min_p, model.min_p, built_in.min_p});
    options.repeat_penalty =
        choose(Levels<double>{"repeat-penalty", "repetition_penalty", kRepeatPenalty, chosen.repeat_penalty,
                              model.repeat_penalty, built_in.repeat_penalty});
    // 32 random bits: short enough to be typed again.
    options.seed = chosen.seed ? *chosen.seed : std::random_device()();
    console.detail(settings.describe("seed", fmt::format("{}", options.seed), "random"));
    return options;
}

}  // namespace slipstream::tools
