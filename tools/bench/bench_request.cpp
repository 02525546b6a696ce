#include "tools/bench/bench_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "tools/options/command.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

constexpr std::uint64_t kBenchSeed = 1;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;

// Options of other modes, which cannot act in this one.
struct BoundOption {
    std::string_view name;
    BenchMode mode;
    std::string_view wanted;
};
constexpr std::array kBound{BoundOption{"depth", BenchMode::Passes, "with --passes"},
                            BoundOption{"hot", BenchMode::Prompts, "with --prompts"},
                            BoundOption{"max-prompts", BenchMode::Prompts, "with --prompts"},
                            BoundOption{"prompt", BenchMode::Plain, "without --passes and --prompts"},
                            BoundOption{"prompt-tokens", BenchMode::Plain, "without --passes and --prompts"}};

void refuse_what_cannot_act(const Settings& settings, BenchMode mode) {
    for (const BoundOption& bound : kBound)
        if (const Setting* setting = settings.on_command_line(bound.name); setting != nullptr && bound.mode != mode)
            throw UsageError(fmt::format("{} acts {} only; leave it out", setting->where, bound.wanted));
    if (mode != BenchMode::Passes) return;
    std::vector<std::string_view> names{"max-tokens"};
    for (const OptionSpec& option : sampling_option_specs()) names.push_back(option.name);
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel)) names.push_back(option.name);
    for (const std::string_view name : names)
        if (const Setting* setting = settings.on_command_line(name))
            throw UsageError(fmt::format("{} acts without --passes only; leave it out", setting->where));
}

// Greedy where no temperature is given, whatever the model's files say: figures are to be compared. The seed is fixed
// for the same reason.
SamplerOptions bench_sampling(const Settings& settings) {
    const SamplingSettings chosen = sampling_settings(settings);
    const SamplerOptions built_in;
    return {.temperature = chosen.temperature.value_or(0.0),
            .top_k = chosen.top_k.value_or(built_in.top_k),
            .top_p = chosen.top_p.value_or(built_in.top_p),
            .min_p = chosen.min_p.value_or(built_in.min_p),
            .repeat_penalty = chosen.repeat_penalty.value_or(built_in.repeat_penalty),
            .repeat_window = chosen.repeat_window.value_or(built_in.repeat_window),
            .presence_penalty = chosen.presence_penalty.value_or(built_in.presence_penalty),
            .frequency_penalty = chosen.frequency_penalty.value_or(built_in.frequency_penalty),
            .bias = chosen.bias.value_or(built_in.bias),
            .seed = chosen.seed.value_or(kBenchSeed)};
}

// Plain decoding is a column of its own.
std::vector<DraftSettings> bench_drafts(const Settings& settings) {
    std::vector<DraftSettings> drafts = draft_settings(settings, DraftPlace::OnModel, DraftLists::Every, "none");
    std::erase_if(drafts, [](const DraftSettings& draft) { return draft.options.sources.empty(); });
    return drafts;
}

BenchMode mode_of(const Settings& settings) {
    constexpr std::array<std::string_view, 2> kModes{"passes", "prompts"};
    const std::string_view chosen = settings.strongest_of(kModes);
    if (chosen.empty()) return BenchMode::Plain;
    return chosen == "passes" ? BenchMode::Passes : BenchMode::Prompts;
}

bool can_be_swept(std::string_view name) {
    constexpr std::array<std::string_view, 4> kOwn{"sweep", "json", "stats", "draft"};
    const auto common = common_options();
    return std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end() &&
           std::none_of(common.begin(), common.end(), [&](const OptionSpec& option) { return option.name == name; });
}

}  // namespace

std::vector<std::int64_t> parse_passes(std::string_view list, std::string_view where) {
    std::vector<std::int64_t> passes;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        std::int64_t n = 0;
        const auto [stop, error] = std::from_chars(list.data() + begin, list.data() + end, n);
        if (error != std::errc() || stop != list.data() + end || n < 1 || n > kMaxPassTokens)
            throw UsageError(
                fmt::format("{}: numbers of tokens from 1 to {}, separated by commas, expected, found '{}'", where,
                            kMaxPassTokens, list));
        passes.push_back(n);
        begin = end + 1;
    }
    return passes;
}

BenchRequest bench_request(const CommandContext& context) {
    const Settings& settings = context.settings;
    BenchRequest request;
    request.compute = compute_options(context.settings);
    request.mode = mode_of(settings);
    refuse_what_cannot_act(settings, request.mode);
    if (request.mode != BenchMode::Passes) {
        request.sampling = bench_sampling(settings);
        request.drafts = bench_drafts(settings);
        request.keeps_tables = settings.flag("hot");
    }
    request.repeat = settings.integer("repeat", {1, kMaxCount}).value_or(request.mode == BenchMode::Prompts ? 1 : 5);
    request.max_tokens = settings.integer("max-tokens", {1, kMaxCount});
    request.prompt_tokens = settings.integer("prompt-tokens", {1, kMaxCount});
    request.prompt = settings.text("prompt");
    if (request.prompt && request.prompt->empty())
        throw UsageError(fmt::format("{}: an empty text has no tokens to measure with; give some, or leave it out",
                                     settings.find("prompt")->where));
    const std::int64_t max_prompts = settings.integer("max-prompts", {1, std::numeric_limits<std::int64_t>::max()})
                                         .value_or(std::numeric_limits<std::int64_t>::max());
    request.depth = settings.integer("depth", {0, kMaxCount}).value_or(0);
    if (request.mode == BenchMode::Passes)
        request.passes = parse_passes(*settings.text("passes"), settings.find("passes")->where);
    if (request.mode == BenchMode::Prompts) {
        request.prompts_file = *settings.path("prompts");
        request.prompts = parse_bench_prompts(read_bytes(request.prompts_file), request.prompts_file, max_prompts);
    }
    return request;
}

std::vector<SweepPoint> sweep_points(const Settings& settings) {
    const Setting* sweep = settings.find("sweep");
    if (sweep == nullptr) return {{std::nullopt, settings}};
    const std::string& text = sweep->values.back();
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
        throw UsageError(fmt::format("{}: 'OPTION=a;b;c' expected, found '{}'", sweep->where, text));
    const std::string name = text.substr(0, equals);
    if (!settings.has(name) || !can_be_swept(name))
        throw UsageError(
            fmt::format("{}: '{}' is no option whose values can be compared; try threads, ctx, kv-type, "
                        "model, depth, budget or temperature",
                        sweep->where, name));
    std::vector<SweepPoint> points;
    for (std::size_t begin = equals + 1; begin <= text.size();) {
        const std::size_t end = std::min(text.find(';', begin), text.size());
        std::string value = text.substr(begin, end - begin);
        if (value.empty())
            throw UsageError(fmt::format("{}: an empty value in '{}'; separate values by one ';'", sweep->where, text));
        Settings changed = settings.with(name, value, fmt::format("{} {}", sweep->where, name));
        points.push_back({std::pair(name, std::move(value)), std::move(changed)});
        begin = end + 1;
    }
    return points;
}

}  // namespace slipstream::tools
