#include "tools/chat/chat_settings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/text/printable.h"
#include "tools/base/closest_name.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

constexpr std::array<std::string_view, 14> kNames{
    "temperature",       "top-k",      "top-p",      "min-p", "repeat-penalty", "repeat-last-n", "presence-penalty",
    "frequency-penalty", "logit-bias", "ignore-eos", "seed",  "max-tokens",     "stop",          "think"};

// Returns a command that has these settings as options, so that the option parser checks values given to /set.
const CommandSpec& command_of_settings() {
    static const CommandSpec command = [] {
        CommandSpec made{.name = "chat", .options = sampling_option_specs()};
        made.options.push_back({"max-tokens", "--max-tokens", "N", ""});
        return made;
    }();
    return command;
}

Settings settings_with(std::string_view name, const std::string& value, std::string_view where) {
    const Settings nothing(
        command_of_settings(), {}, {}, [](const std::string&) { return std::nullopt; }, {}, "");
    return nothing.with(name, value, std::string(where));
}

std::string with_newlines(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool escaped = text.substr(i).starts_with("\\n");
        result += escaped ? '\n' : text[i];
        if (escaped) ++i;
    }
    return result;
}

std::string without_newlines(std::string_view text) {
    std::string result;
    for (const char c : text) result += c == '\n' ? std::string("\\n") : std::string(1, c);
    return printable(result);
}

}  // namespace

std::span<const std::string_view> setting_names() {
    return kNames;
}

void change_setting(ChatSettings& settings, std::string_view name, const std::string& value, std::string_view where) {
    if (std::ranges::find(kNames, name) == kNames.end()) {
        const std::string_view meant = closest_name(name, kNames);
        throw UsageError(
            meant.empty() ? fmt::format("{}: unknown setting '{}'; known settings: {}", where, printable(name),
                                        fmt::join(kNames, ", "))
                          : fmt::format("{}: unknown setting '{}'; did you mean {}?", where, printable(name), meant));
    }
    if (name == "stop") {
        settings.text.stops.clear();
        if (value != "none") settings.text.stops.push_back(with_newlines(value));
        return;
    }
    if (name == "think") {
        const bool is_on = value == "on" || value == "true", is_off = value == "off" || value == "false";
        if (!is_on && !is_off && value != "auto")
            throw UsageError(fmt::format("{}: on, off or auto expected, found '{}'", where, printable(value)));
        settings.think = value == "auto" ? std::nullopt : std::optional(is_on);
        return;
    }
    const Settings given = settings_with(name, value, where);
    const SamplingSettings read = sampling_settings(given);
    SamplerOptions& sampling = settings.sampling;
    sampling.temperature = read.temperature.value_or(sampling.temperature);
    sampling.top_k = read.top_k.value_or(sampling.top_k);
    sampling.top_p = read.top_p.value_or(sampling.top_p);
    sampling.min_p = read.min_p.value_or(sampling.min_p);
    sampling.repeat_penalty = read.repeat_penalty.value_or(sampling.repeat_penalty);
    sampling.repeat_window = read.repeat_window.value_or(sampling.repeat_window);
    sampling.presence_penalty = read.presence_penalty.value_or(sampling.presence_penalty);
    sampling.frequency_penalty = read.frequency_penalty.value_or(sampling.frequency_penalty);
    sampling.bias = read.bias.value_or(sampling.bias);
    if (name == "ignore-eos") settings.ignore_end = read.ignore_end;
    if (name == "seed") sampling.seed = read.seed.value_or(random_seed());
    settings.text.max_tokens =
        given.integer("max-tokens", {-1, std::numeric_limits<std::int64_t>::max()}).value_or(settings.text.max_tokens);
}

std::string describe_setting(const ChatSettings& settings, std::string_view name) {
    const SamplerOptions& sampling = settings.sampling;
    if (name == "temperature") return fmt::format("temperature {}", sampling.temperature);
    if (name == "top-k") return fmt::format("top-k {}", sampling.top_k);
    if (name == "top-p") return fmt::format("top-p {}", sampling.top_p);
    if (name == "min-p") return fmt::format("min-p {}", sampling.min_p);
    if (name == "repeat-penalty") return fmt::format("repeat-penalty {}", sampling.repeat_penalty);
    if (name == "repeat-last-n") return fmt::format("repeat-last-n {}", window_text(sampling.repeat_window));
    if (name == "presence-penalty") return fmt::format("presence-penalty {}", sampling.presence_penalty);
    if (name == "frequency-penalty") return fmt::format("frequency-penalty {}", sampling.frequency_penalty);
    if (name == "logit-bias") return fmt::format("logit-bias {}", logit_bias_text(sampling.bias));
    if (name == "ignore-eos") return fmt::format("ignore-eos {}", settings.ignore_end);
    if (name == "seed") return fmt::format("seed {}", sampling.seed);
    if (name == "max-tokens") return fmt::format("max-tokens {}", settings.text.max_tokens);
    if (name == "think") return fmt::format("think {}", !settings.think ? "auto" : *settings.think ? "on" : "off");
    std::vector<std::string> stops;
    for (const std::string& stop : settings.text.stops) stops.push_back(without_newlines(stop));
    return fmt::format("stop {}", stops.empty() ? "none" : fmt::format("{}", fmt::join(stops, " | ")));
}

}  // namespace slipstream::tools
