#include "tools/sampling_options.h"

#include <random>
#include <string_view>

#include <fmt/format.h>

#include "tools/console.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kModelSource = "the model's generation_config";

template <typename T>
T resolve(std::string_view name, std::optional<T> chosen, std::optional<T> models_own, T built_in,
          const Settings& settings, Console& console) {
    const T value = chosen.value_or(models_own.value_or(built_in));
    console.detail(settings.describe(name, fmt::format("{}", value), models_own ? kModelSource : "built in"));
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
    constexpr Range<double> share{0.0, 1.0};
    return {.temperature = settings.real("temperature", {0.0, 1000.0}),
            .top_k = settings.integer("top-k", {0, std::numeric_limits<std::int64_t>::max()}),
            .top_p = settings.real("top-p", share),
            .min_p = settings.real("min-p", share),
            .repeat_penalty = settings.real("repeat-penalty", {0.01, 100.0}),
            .seed = settings.unsigned_integer("seed")};
}

SamplerOptions resolve_sampling(const SamplingSettings& chosen, const GenerationDefaults& model,
                                const Settings& settings, Console& console) {
    const SamplerOptions built_in;
    // "do_sample": false is how files say greedy.
    const std::optional<double> models_temperature = model.do_sample == false ? 0.0 : model.temperature;
    SamplerOptions options;
    const auto choose = [&](std::string_view name, auto mine, auto models_own, auto otherwise) {
        return resolve<decltype(otherwise)>(name, mine, models_own, otherwise, settings, console);
    };
    options.temperature = choose("temperature", chosen.temperature, models_temperature, built_in.temperature);
    options.top_k = choose("top-k", chosen.top_k, model.top_k, built_in.top_k);
    options.top_p = choose("top-p", chosen.top_p, model.top_p, built_in.top_p);
    options.min_p = choose("min-p", chosen.min_p, model.min_p, built_in.min_p);
    options.repeat_penalty =
        choose("repeat-penalty", chosen.repeat_penalty, model.repeat_penalty, built_in.repeat_penalty);
    // 32 random bits: short enough to be typed again.
    options.seed = chosen.seed ? *chosen.seed : std::random_device()();
    console.detail(settings.describe("seed", fmt::format("{}", options.seed), "random"));
    return options;
}

}  // namespace slipstream::tools
