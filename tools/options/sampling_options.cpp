#include "tools/options/sampling_options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kModelSource = "the model's generation_config";

// What each value may be, wherever it comes from.
constexpr Range<double> kTemperature{0.0, 1000.0};
constexpr Range<std::int64_t> kTopK{0, std::numeric_limits<std::int64_t>::max()};
constexpr Range<std::int64_t> kWindow{-1, std::numeric_limits<std::int64_t>::max()};
constexpr Range<double> kShare{0.0, 1.0};
constexpr Range<double> kRepeatPenalty{0.01, 100.0};
constexpr Range<double> kAddedPenalty{-100.0, 100.0};
constexpr float kMostBias = 1000.0F;

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

// -1 is how some say "no limit".
std::optional<std::int64_t> top_k_setting(const Settings& settings) {
    const auto top_k = settings.integer("top-k", {-1, kTopK.highest});
    return top_k == -1 ? 0 : top_k;
}

std::optional<std::int64_t> window_setting(const Settings& settings) {
    const auto window = settings.integer("repeat-last-n", kWindow);
    return window == -1 ? kWindow.highest : window;
}

}  // namespace

std::string window_text(std::int64_t repeat_window) {
    return repeat_window == kWindow.highest ? "-1" : fmt::format("{}", repeat_window);
}

namespace {

// 32 random bits: short enough to be typed again.
std::uint64_t random_seed() {
    return std::random_device()();
}

std::optional<std::uint64_t> seed_setting(const Settings& settings) {
    const Setting* setting = settings.find("seed");
    if (setting != nullptr && setting->values.back() == "-1") return random_seed();
    return settings.unsigned_integer("seed", ", or -1 for a random one,");
}

std::optional<std::vector<TokenBias>> bias_setting(const Settings& settings) {
    const Setting* setting = settings.find("logit-bias");
    if (setting == nullptr) return std::nullopt;
    std::vector<TokenBias> all;
    for (const std::string& value : setting->values) {
        const std::vector<TokenBias> some = parse_logit_bias(value, setting->where);
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

}  // namespace

bool seed_is_random(const Settings& settings) {
    const Setting* setting = settings.find("seed");
    return setting == nullptr || setting->values.back() == "-1";
}

std::vector<TokenBias> parse_logit_bias(std::string_view text, std::string_view where) {
    std::vector<TokenBias> all;
    if (text == "none") return all;
    const auto refuse = [&] {
        throw UsageError(
            fmt::format("{}: a token's id and what to add, ID=X with X from -{} to {} or -inf, expected, found '{}'",
                        where, kMostBias, kMostBias, text));
    };
    for (const std::string_view item : split_list(text)) {
        TokenBias& bias = all.emplace_back();
        const char* const stop = item.data() + item.size();
        const auto [id_end, id_error] = std::from_chars(item.data(), stop, bias.id);
        const char* value = id_end;
        if (id_error != std::errc() || bias.id < 0 || value == stop) refuse();
        if (*value == '=') ++value;
        if (value != stop && *value == '+') ++value;
        const auto [value_end, value_error] = std::from_chars(value, stop, bias.bias);
        const bool never = bias.bias == -std::numeric_limits<float>::infinity();
        if (value == id_end && *value != '-') refuse();
        if (value_error != std::errc() || value_end != stop || (!never && !(std::abs(bias.bias) <= kMostBias)))
            refuse();
    }
    return all;
}

std::vector<OptionSpec> sampling_option_specs() {
    return {
        {"temperature", "--temperature,--temp", "X",
         "0 takes the likeliest token, ties to the lowest id [the model's, 0.8]"},
        {"top-k", "--top-k", "N", "Draw among the N likeliest tokens; 0 or -1: all [the model's, 40]"},
        {"top-p", "--top-p", "X",
         "Draw among the likeliest that hold X of the probability; 1: all [the model's, 0.95]"},
        {"min-p", "--min-p", "X", "Draw among tokens at least X times as likely as the best; 0: all [the model's, 0]"},
        {"repeat-penalty", "--repeat-penalty", "X", "Weaken tokens that the last ones hold; 1: off [the model's, 1]"},
        {"repeat-last-n", "--repeat-last-n", "N", "How many last ones penalties look at; -1: all, 0: none [64]"},
        {"presence-penalty", "--presence-penalty", "X", "Taken from the logit of each token among them; 0: off [0]"},
        {"frequency-penalty", "--frequency-penalty", "X", "Taken from it for each time it is there; 0: off [0]"},
        {"logit-bias", "-l,--logit-bias", "ID=X",
         "Added to a token's logit, -inf: it never comes; several by commas, or repeated ('tokenize' tells ids)"},
        {"ignore-eos", "--ignore-eos", "", "Go on where the model would end: its end tokens never come"},
        {"seed", "-s,--seed", "N", "The same seed gives the same text; -1: random [random, printed]"},
    };
}

SamplingSettings sampling_settings(const Settings& settings) {
    return {.temperature = settings.real("temperature", kTemperature),
            .top_k = top_k_setting(settings),
            .top_p = settings.real("top-p", kShare),
            .min_p = settings.real("min-p", kShare),
            .repeat_penalty = settings.real("repeat-penalty", kRepeatPenalty),
            .repeat_window = window_setting(settings),
            .presence_penalty = settings.real("presence-penalty", kAddedPenalty),
            .frequency_penalty = settings.real("frequency-penalty", kAddedPenalty),
            .bias = bias_setting(settings),
            .ignore_end = settings.has("ignore-eos") && settings.flag("ignore-eos"),
            .seed = seed_setting(settings)};
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
    const auto chosen_one = [&](std::string_view name, const auto& given, auto& value) {
        if (given) value = *given;
        console.detail(settings.describe(name, fmt::format("{}", value), "built in"));
    };
    if (chosen.repeat_window) options.repeat_window = *chosen.repeat_window;
    console.detail(settings.describe("repeat-last-n", window_text(options.repeat_window), "built in"));
    chosen_one("presence-penalty", chosen.presence_penalty, options.presence_penalty);
    chosen_one("frequency-penalty", chosen.frequency_penalty, options.frequency_penalty);
    if (chosen.bias) options.bias = *chosen.bias;
    console.detail(settings.describe("logit-bias", logit_bias_text(options.bias), "built in"));
    console.detail(settings.describe("ignore-eos", fmt::format("{}", chosen.ignore_end), "built in"));
    options.seed = chosen.seed ? *chosen.seed : random_seed();
    console.detail(seed_is_random(settings) ? fmt::format("seed = {} (random)", options.seed)
                                            : settings.describe("seed", fmt::format("{}", options.seed), "random"));
    return options;
}

}  // namespace slipstream::tools
