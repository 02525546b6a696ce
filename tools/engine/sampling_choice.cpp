#include "tools/engine/sampling_choice.h"

#include <limits>
#include <optional>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kModelSource = "the model's generation_config";
constexpr std::string_view kBuiltIn = "built in";

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
T resolve(const Levels<T>& option, const EngineCallbacks& callbacks) {
    const T value = option.chosen.value_or(option.models_own.value_or(option.built_in));
    // A chosen value was checked when it was read, so one that is out of range here comes from the model's file.
    if (!(value >= option.range.lowest && value <= option.range.highest))
        throw FormatError(
            fmt::format("the model's generation_config.json: {} is {}; a value {} is served, override it by --{}",
                        option.key, value, limits_text(option.range), option.name));
    callbacks.choice(option.name, fmt::format("{}", value), option.models_own ? kModelSource : kBuiltIn);
    return value;
}

}  // namespace

std::string window_text(std::int64_t repeat_window) {
    return repeat_window == std::numeric_limits<std::int64_t>::max() ? "-1" : fmt::format("{}", repeat_window);
}

std::uint64_t random_seed() {
    return std::random_device()();
}

SamplerOptions resolve_sampling(const SamplingSettings& chosen, const GenerationDefaults& model,
                                const EngineCallbacks& callbacks) {
    const SamplerOptions built_in;
    // "do_sample": false in generation_config.json means greedy decoding, which is a temperature of 0 here.
    const std::optional<double> models_temperature = model.do_sample == false ? 0.0 : model.temperature;
    const std::optional<std::int64_t> models_top_k = model.top_k == -1 ? 0 : model.top_k;
    SamplerOptions options;
    const auto choose = [&]<typename T>(const Levels<T>& levels) { return resolve(levels, callbacks); };
    options.temperature = choose(Levels<double>{"temperature", "temperature", kTemperatureRange, chosen.temperature,
                                                models_temperature, built_in.temperature});
    options.top_k =
        choose(Levels<std::int64_t>{"top-k", "top_k", kTopKRange, chosen.top_k, models_top_k, built_in.top_k});
    options.top_p = choose(Levels<double>{"top-p", "top_p", kShareRange, chosen.top_p, model.top_p, built_in.top_p});
    options.min_p = choose(Levels<double>{"min-p", "min_p", kShareRange, chosen.min_p, model.min_p, built_in.min_p});
    options.repeat_penalty =
        choose(Levels<double>{"repeat-penalty", "repetition_penalty", kRepeatPenaltyRange, chosen.repeat_penalty,
                              model.repeat_penalty, built_in.repeat_penalty});
    const auto chosen_one = [&](std::string_view name, const auto& given, auto& value) {
        if (given) value = *given;
        callbacks.choice(name, fmt::format("{}", value), kBuiltIn);
    };
    if (chosen.repeat_window) options.repeat_window = *chosen.repeat_window;
    callbacks.choice("repeat-last-n", window_text(options.repeat_window), kBuiltIn);
    chosen_one("presence-penalty", chosen.presence_penalty, options.presence_penalty);
    chosen_one("frequency-penalty", chosen.frequency_penalty, options.frequency_penalty);
    // Of several biases for a token the last one counts: the user's.
    for (const TokenId id : model.suppressed_tokens)
        options.bias.push_back({id, -std::numeric_limits<float>::infinity()});
    if (chosen.bias) options.bias.insert(options.bias.end(), chosen.bias->begin(), chosen.bias->end());
    callbacks.choice("logit-bias", logit_bias_text(options.bias),
                     model.suppressed_tokens.empty() ? kBuiltIn : kModelSource);
    callbacks.choice("ignore-eos", fmt::format("{}", chosen.ignore_end), kBuiltIn);
    options.seed = chosen.seed ? *chosen.seed : random_seed();
    if (chosen.seed) {
        callbacks.choice("seed", fmt::format("{}", options.seed), "random");
    } else {
        callbacks.detail(fmt::format("seed = {} (random)", options.seed));
    }
    return options;
}

}  // namespace slipstream::tools
