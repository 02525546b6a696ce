#include "tools/options/sampling_options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

constexpr Range<std::int64_t> kWindow{-1, std::numeric_limits<std::int64_t>::max()};

// Returns --top-k; -1, which other programs use for "no limit", becomes 0.
std::optional<std::int64_t> top_k_setting(const Settings& settings) {
    const auto top_k = settings.integer("top-k", {-1, kTopKRange.highest});
    return top_k == -1 ? 0 : top_k;
}

std::optional<std::int64_t> window_setting(const Settings& settings) {
    const auto window = settings.integer("repeat-last-n", kWindow);
    return window == -1 ? kWindow.highest : window;
}

std::optional<std::uint64_t> seed_setting(const Settings& settings) {
    const Setting* setting = settings.find("seed");
    if (setting != nullptr && setting->values.back() == "-1") return std::nullopt;
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
        {"repeat-penalty", "--repeat-penalty", "X", "Weaken recent tokens; 1: off [the model's, 1]"},
        {"repeat-last-n", "--repeat-last-n", "N", "Recent tokens that are penalised; -1: all, 0: none [64]"},
        {"presence-penalty", "--presence-penalty", "X", "Subtracted from the logit of each recent token; 0: off [0]"},
        {"frequency-penalty", "--frequency-penalty", "X", "Subtracted once per recent occurrence; 0: off [0]"},
        {"logit-bias", "-l,--logit-bias", "ID=X",
         "Added to a token's logit, -inf: never sampled; several by commas, or repeated ('tokenize' prints ids)"},
        {"ignore-eos", "--ignore-eos", "", "Go on where the model would end: end tokens are never sampled"},
        {"seed", "-s,--seed", "N", "The same seed gives the same text; -1: random [random, printed]"},
    };
}

SamplingSettings sampling_settings(const Settings& settings) {
    return {.temperature = settings.real("temperature", kTemperatureRange),
            .top_k = top_k_setting(settings),
            .top_p = settings.real("top-p", kShareRange),
            .min_p = settings.real("min-p", kShareRange),
            .repeat_penalty = settings.real("repeat-penalty", kRepeatPenaltyRange),
            .repeat_window = window_setting(settings),
            .presence_penalty = settings.real("presence-penalty", kAddedPenaltyRange),
            .frequency_penalty = settings.real("frequency-penalty", kAddedPenaltyRange),
            .bias = bias_setting(settings),
            .ignore_end = settings.has("ignore-eos") && settings.flag("ignore-eos"),
            .seed = seed_setting(settings)};
}

}  // namespace slipstream::tools
