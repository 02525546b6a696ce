#include "tools/bench/bench_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"

namespace slipstream::tools {

namespace {

constexpr std::uint64_t kBenchSeed = 1;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
constexpr std::size_t kMostPromptBytes = std::size_t{1} << 30;

// An option that has an effect only in some modes.
struct BoundOption {
    std::string_view name;
    bool (*acts)(BenchMode);
    std::string_view wanted;
};
bool is_plain(BenchMode mode) {
    return mode == BenchMode::Plain;
}
bool has_prompts(BenchMode mode) {
    return mode == BenchMode::Prompts;
}
bool generates(BenchMode mode) {
    return mode != BenchMode::Passes;
}
bool has_passes(BenchMode mode) {
    return mode == BenchMode::Passes;
}
constexpr std::string_view kIsPlain = "without --passes and --prompts";
constexpr std::string_view kGenerates = "without --passes";
constexpr std::array kBound{BoundOption{"file", is_plain, kIsPlain},
                            BoundOption{"stages", has_passes, "without --prompts"},
                            BoundOption{"depth", has_passes, "with --passes"},
                            BoundOption{"hot", has_prompts, "with --prompts"},
                            BoundOption{"max-prompts", has_prompts, "with --prompts"},
                            BoundOption{"prompt", is_plain, kIsPlain},
                            BoundOption{"prompt-tokens", is_plain, kIsPlain},
                            BoundOption{"session", is_plain, kIsPlain},
                            BoundOption{"max-tokens", generates, kGenerates}};

// Drafting matters for --passes, too: it takes device memory.
void refuse_what_cannot_act(const Settings& settings, BenchMode mode) {
    std::vector<BoundOption> all(kBound.begin(), kBound.end());
    for (const OptionSpec& option : sampling_option_specs()) all.push_back({option.name, generates, kGenerates});
    for (const OptionSpec& option : template_option_specs()) all.push_back({option.name, generates, kGenerates});
    for (const BoundOption& bound : all)
        if (const Setting* setting = settings.on_command_line(bound.name); setting != nullptr && !bound.acts(mode)) {
            // --stages alone times passes of 1 token.
            const bool by_stages = mode == BenchMode::Passes && settings.find("passes") == nullptr;
            throw UsageError(fmt::format("{} has an effect only {}; remove it", setting->where,
                                         by_stages ? "without --stages" : bound.wanted));
        }
}

// Throws UsageError if an option gives another text than that of the session, whose KV exists.
void refuse_another_text(const Settings& settings) {
    for (const std::string_view option : {"prompt", "prompt-tokens", "file", "template", "template-arg", "system"})
        if (const Setting* setting = settings.on_command_line(option))
            throw UsageError(fmt::format(
                "{} cannot be combined with --session, which has its own text; give one of them", setting->where));
}

// Returns the template settings as in generate, except that the built-in text stays raw unless a template is requested.
TemplateSettings bench_template(const Settings& settings, const BenchRequest& request) {
    TemplateSettings chosen = template_settings(settings);
    const bool asked = chosen.choice == TemplateChoice::Named || chosen.system_demanded || chosen.arguments_demanded;
    const bool plain = request.mode == BenchMode::Plain;
    if (plain && asked && !request.prompt && settings.on_command_line("prompt-tokens") != nullptr)
        throw UsageError(
            "--prompt-tokens cuts or repeats the built-in text, and a chat template takes it as it is; give one of "
            "them, or a --prompt");
    if (request.session || (plain && !asked && !request.prompt)) chosen.choice = TemplateChoice::None;
    return chosen;
}

// Returns the text of --prompt or --file for a plain run; nullopt if neither is given.
std::optional<std::string> given_prompt(const Settings& settings) {
    constexpr std::array<std::string_view, 2> kEither{"prompt", "file"};
    const std::string_view chosen = settings.strongest_of(kEither);
    if (chosen.empty()) return std::nullopt;
    std::string text =
        chosen == "prompt" ? *settings.text("prompt") : read_text(*settings.path("file"), "--file", kMostPromptBytes);
    if (text.empty())
        throw UsageError(fmt::format("{}: an empty text has no tokens to measure with; give some, or leave it out",
                                     settings.find(chosen)->where));
    return text;
}

// Greedy unless a temperature is given, and with a fixed seed, whatever defaults the model's files give, so that
// figures can be compared.
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

// Returns the values of --draft without `none`: plain decoding is always a column.
std::vector<DraftSettings> bench_drafts(const Settings& settings) {
    std::vector<DraftSettings> drafts = draft_settings(settings, DraftPlace::OnModel, DraftLists::Every, "none");
    std::erase_if(drafts, [](const DraftSettings& draft) { return draft.options.sources.empty(); });
    return drafts;
}

BenchMode mode_of(const Settings& settings) {
    constexpr std::array<std::string_view, 2> kModes{"passes", "prompts"};
    const std::string_view chosen = settings.strongest_of(kModes);
    if (chosen.empty()) return settings.flag("stages") ? BenchMode::Passes : BenchMode::Plain;
    return chosen == "passes" ? BenchMode::Passes : BenchMode::Prompts;
}

bool can_be_swept(std::string_view name) {
    constexpr std::array<std::string_view, 5> kOwn{"sweep", "json", "stats", "draft", "trace"};
    const auto common = common_options();
    return std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end() &&
           std::none_of(common.begin(), common.end(), [&](const OptionSpec& option) { return option.name == name; });
}

}  // namespace

std::vector<std::int64_t> parse_passes(std::string_view list, std::string_view where) {
    std::vector<std::int64_t> passes;
    for (const std::string_view item : split_list(list)) {
        std::int64_t n = 0;
        const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), n);
        if (error != std::errc() || stop != item.data() + item.size() || n < 1 || n > kMaxPassTokens)
            throw UsageError(
                fmt::format("{}: numbers of tokens from 1 to {}, separated by commas, expected, found '{}'", where,
                            kMaxPassTokens, list));
        passes.push_back(n);
    }
    return passes;
}

BenchRequest bench_request(const CommandContext& context) {
    const Settings& settings = context.settings;
    BenchRequest request;
    request.compute = compute_options(context.settings);
    request.mode = mode_of(settings);
    refuse_what_cannot_act(settings, request.mode);
    if (generates(request.mode)) request.sampling = bench_sampling(settings);
    if (const auto session = settings.path("session")) {
        refuse_another_text(settings);
        request.session = *session;
    }
    if (request.mode == BenchMode::Plain) request.prompt = given_prompt(settings);
    if (generates(request.mode)) {
        request.chat_template = bench_template(settings, request);
        request.drafts = bench_drafts(settings);
        request.keeps_tables = settings.flag("hot");
    }
    const bool repeats_much = request.mode == BenchMode::Plain || request.mode == BenchMode::Passes;
    if (request.mode == BenchMode::Passes)
        request.drafts = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto");
    request.repeat = settings.integer("repeat", {1, kMaxCount}).value_or(repeats_much ? 5 : 1);
    request.max_tokens = settings.integer("max-tokens", {1, kMaxCount});
    request.prompt_tokens = settings.integer("prompt-tokens", {1, kMaxCount});
    const std::int64_t max_prompts = settings.integer("max-prompts", {1, std::numeric_limits<std::int64_t>::max()})
                                         .value_or(std::numeric_limits<std::int64_t>::max());
    request.depth = settings.integer("depth", {0, kMaxCount});
    if (request.mode == BenchMode::Passes)
        request.passes = settings.find("passes") != nullptr
                             ? parse_passes(*settings.text("passes"), settings.find("passes")->where)
                             : std::vector<std::int64_t>{1};
    if (request.mode == BenchMode::Passes) request.stages = settings.flag("stages");
    if (request.mode == BenchMode::Prompts) {
        request.prompts_file = *settings.path("prompts");
        request.prompts = parse_bench_prompts(read_text(request.prompts_file, "--prompts", kMostPromptBytes),
                                              request.prompts_file, max_prompts);
    }
    return request;
}

std::vector<SweepPoint> sweep_points(const Settings& settings) {
    const Setting* sweep = settings.find("sweep");
    if (sweep == nullptr) return {{std::nullopt, settings}};
    if (const Setting* trace = settings.find("trace"))
        throw UsageError(
            fmt::format("{} records one run, and {} makes several; give one of them", trace->where, sweep->where));
    const std::string& text = sweep->values.back();
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
        throw UsageError(fmt::format("{}: 'OPTION=a;b;c' expected, found '{}'", sweep->where, text));
    const std::string name = text.substr(0, equals);
    if (!settings.has(name) || !can_be_swept(name))
        throw UsageError(
            fmt::format("{}: the values of '{}' cannot be compared; use threads, ctx, kv-type, "
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
