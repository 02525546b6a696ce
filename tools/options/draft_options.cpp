#include "tools/options/draft_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/checked_math.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/options/draft_sources.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

using draft::SourceKind;
using draft::TreeShape;

constexpr std::int64_t kMaxGamma = 256;
constexpr std::int64_t kMaxLookupNgram = 16;
constexpr std::int64_t kLeastView = 32;                    // tokens of a KV view (--kv-budget)
constexpr std::int64_t kMostView = std::int64_t{1} << 20;  // tokens; also of --view-rebuild

std::vector<SourceKind> choose_automatic(const Settings& settings, DraftPlace place, std::optional<TreeShape> shape) {
    std::vector<SourceKind> sources;
    const auto add = [&](SourceKind kind) {
        if (place == DraftPlace::OnModel || needs_tokens_only(kind)) sources.push_back(kind);
    };
    if (const std::vector<SourceKind> own = shape ? sources_of(*shape) : std::vector<SourceKind>{}; !own.empty()) {
        for (const SourceKind kind : own) add(kind);
        return sources;
    }
    for (const SourceKind kind : automatic_sources()) add(kind);
    const auto join = [&](SourceKind kind, std::initializer_list<std::string_view> options) {
        const bool given = std::any_of(options.begin(), options.end(),
                                       [&](std::string_view name) { return settings.find(name) != nullptr; });
        if (given && std::find(sources.begin(), sources.end(), kind) == sources.end()) sources.push_back(kind);
    };
    join(SourceKind::Cacheback, {"cacheback", "frozen-table"});
    join(SourceKind::Corpus, {"corpus"});
    return sources;
}

void check_shape(const draft::DraftOptions& options, const Setting& tree) {
    const std::vector<SourceKind> own = sources_of(*options.shape);
    if (own.empty()) return;
    std::vector<std::string_view> names;
    for (const SourceKind kind : own) names.push_back(draft::source_name(kind));
    for (const SourceKind kind : options.sources)
        if (std::find(own.begin(), own.end(), kind) == own.end())
            throw UsageError(
                fmt::format("{} {}: this tree is built from {} alone, and '{}' is among the sources; use "
                            "--draft {}, or another tree",
                            tree.where, tree.values.back(), fmt::join(names, ", "), draft::source_name(kind),
                            fmt::join(names, ",")));
    // The first source of the shape is required, the others are optional.
    if (!options.sources.empty() && !options.has(own.front()))
        throw UsageError(
            fmt::format("{} {}: this tree requires '{}', which is not among the sources; use "
                        "--draft {}, or another tree",
                        tree.where, tree.values.back(), names.front(), fmt::join(names, ",")));
}

// An option that has an effect with some lists of sources only. `acts` returns whether it has one with these settings;
// `wanted` says in words what it requires.
struct BoundOption {
    std::string_view name;
    bool (*acts)(const DraftSettings&);
    std::string_view wanted;
};
bool drafts_with_view(const DraftSettings& draft) {
    return draft.options.has(SourceKind::Retrieval);
}
constexpr std::string_view kWithRetrieval = "with 'retrieval' among the sources";

constexpr std::array kBound{
    BoundOption{"draft-model", [](const DraftSettings& draft) { return draft.options.has(SourceKind::Model); },
                "with 'model' among the sources"},
    BoundOption{"lookup-ngram", [](const DraftSettings& draft) { return draft.options.has(SourceKind::Lookup); },
                "with 'lookup' among the sources"},
    BoundOption{"cacheback", [](const DraftSettings& draft) { return draft.options.has(SourceKind::Cacheback); },
                "with 'cacheback' among the sources"},
    BoundOption{"frozen-table", [](const DraftSettings& draft) { return draft.options.has(SourceKind::Cacheback); },
                "with 'cacheback' among the sources"},
    BoundOption{"corpus", [](const DraftSettings& draft) { return draft.options.has(SourceKind::Corpus); },
                "with 'corpus' among the sources"},
    BoundOption{"kv-budget", drafts_with_view, kWithRetrieval},
    BoundOption{"kv-view", drafts_with_view, kWithRetrieval},
    BoundOption{"view-type", drafts_with_view, kWithRetrieval},
    BoundOption{"view-score",
                [](const DraftSettings& draft) {
                    return drafts_with_view(draft) && draft.options.view.kind == ViewKind::Retrieval;
                },
                "on --kv-view retrieval, with 'retrieval' among the sources"},
    BoundOption{"view-rebuild", drafts_with_view, kWithRetrieval},
    BoundOption{"gamma", [](const DraftSettings& draft) { return draft.options.shape == TreeShape::Chain; },
                "on chains (--tree chain, or a source alone)"},
};

// Throws UsageError for options on the command line that have no effect with any of the lists. If no list has sources,
// options of drafting are accepted, so that scripts can vary --draft alone.
void refuse_what_cannot_act(const Settings& settings, std::span<const DraftSettings> drafts) {
    if (std::ranges::all_of(drafts, [](const DraftSettings& draft) { return draft.options.sources.empty(); })) return;
    const auto some = [&](const auto& acts) { return std::any_of(drafts.begin(), drafts.end(), acts); };
    for (const BoundOption& bound : kBound)
        if (const Setting* setting = settings.on_command_line(bound.name); setting != nullptr && !some(bound.acts))
            throw UsageError(fmt::format("{} has an effect only {}; remove it", setting->where, bound.wanted));
    if (const Setting* setting = settings.on_command_line("noise-ranking");
        setting != nullptr && !drafts.empty() && drafts.front().verify == VerifyRule::Rejection)
        throw UsageError(fmt::format("{} has an effect only with --verify exact; remove it", setting->where));
}

template <typename T>
T choice(const Settings& settings, std::string_view name, std::initializer_list<std::pair<std::string_view, T>> values,
         T otherwise) {
    const Setting* setting = settings.has(name) ? settings.find(name) : nullptr;
    if (setting == nullptr) return otherwise;
    std::vector<std::string_view> names;
    for (const auto& [spelling, value] : values) {
        if (spelling == setting->values.back()) return value;
        names.push_back(spelling);
    }
    throw UsageError(
        fmt::format("{}: {} expected, found '{}'", setting->where, fmt::join(names, " or "), setting->values.back()));
}

std::optional<TreeShape> shape_setting(const Settings& settings) {
    const Setting* setting = settings.find("tree");
    if (setting == nullptr) return std::nullopt;
    const auto shape = draft::find_tree_shape(setting->values.back());
    if (!shape)
        throw UsageError(fmt::format("{}: merged, cacheback, recycling, ngrammys or chain expected, found '{}'",
                                     setting->where, setting->values.back()));
    return shape;
}

// Reads --kv-budget: tokens, or a percentage of the context.
void choose_view_size(DraftSettings& draft, const Settings& settings) {
    const Setting* setting = settings.has("kv-budget") ? settings.find("kv-budget") : nullptr;
    if (setting == nullptr) return;
    std::string_view text = setting->values.back();
    if (!text.ends_with('%')) {
        draft.options.view.budget_tokens =
            round_up(settings.integer("kv-budget", {kLeastView, kMostView}).value_or(0), kGroupTokens);
    } else {
        text.remove_suffix(1);
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), draft.view_percent);
        if (error != std::errc() || stop != text.data() + text.size() || draft.view_percent < 1 ||
            draft.view_percent > 100)
            throw UsageError(fmt::format("{}: a percentage from 1% to 100% expected, found '{}'", setting->where,
                                         setting->values.back()));
    }
    if (draft.view_type == ViewType::Q4 && draft.view_percent == 0 &&
        draft.options.view.budget_tokens < kLeastPagedView)
        throw UsageError(
            fmt::format("{}: a view of type q4 has at least {} tokens, found '{}'; give more, or "
                        "--view-type f16",
                        setting->where, kLeastPagedView, setting->values.back()));
}

ViewOptions view_settings(const Settings& settings) {
    ViewOptions view;
    view.budget_tokens = 0;
    view.kind = choice<ViewKind>(settings, "kv-view",
                                 {{"retrieval", ViewKind::Retrieval}, {"window", ViewKind::Window}}, view.kind);
    view.score = choice<GroupScore>(settings, "view-score", {{"mass", GroupScore::Mass}, {"mean", GroupScore::Mean}},
                                    view.score);
    view.rebuild_tokens = settings.integer("view-rebuild", {0, kMostView}).value_or(view.rebuild_tokens);
    return view;
}

// Returns a function that finds the draft model for a target: the one that --draft-model names (as -m does), else the
// bundled draft model if the target is the bundled model, else an empty path.
std::function<std::filesystem::path(const std::filesystem::path&)> draft_model_finder(std::optional<std::string> named,
                                                                                      EnvironmentReader environment) {
    return [named = std::move(named), environment = std::move(environment)](const std::filesystem::path& target) {
        const std::filesystem::path bundled = bundled_model(program_folder());
        if (named)
            return resolve_model(
                *named, [&] { return find_models(environment, bundled); }, "--draft-model");
        std::error_code error;
        if (bundled.empty() || !std::filesystem::equivalent(bundled, target, error)) return std::filesystem::path();
        return bundled_draft_model(program_folder());
    };
}

// Returns the settings that do not depend on the sources.
DraftSettings shared_settings(const Settings& settings, DraftPlace place) {
    DraftSettings draft;
    draft.options.shape = shape_setting(settings);
    draft.options.lookup_ngram =
        settings.integer("lookup-ngram", {1, kMaxLookupNgram}).value_or(draft.options.lookup_ngram);
    draft.options.gamma = settings.integer("gamma", {1, kMaxGamma});
    if (const Setting* list = settings.find("cacheback"))
        draft.options.cacheback = parse_cacheback(list->values.back(), list->where);
    if (const auto file = settings.path("frozen-table")) draft.options.frozen_table = *file;
    if (const auto file = settings.path("corpus")) draft.options.corpus = *file;
    if (place == DraftPlace::OnRecording) return draft;
    draft.find_model = draft_model_finder(settings.path("draft-model"), settings.environment());
    draft.options.tables = tables_folder(settings);
    draft.options.noise_ranking = choice<draft::NoiseRanking>(
        settings, "noise-ranking", {{"aware", draft::NoiseRanking::Aware}, {"blind", draft::NoiseRanking::Blind}},
        draft::NoiseRanking::Aware);
    draft.options.view = view_settings(settings);
    draft.view_type = choice<std::optional<ViewType>>(
        settings, "view-type", {{"auto", std::nullopt}, {"f16", ViewType::Rows}, {"q4", ViewType::Q4}}, std::nullopt);
    choose_view_size(draft, settings);
    draft.verify = choice<VerifyRule>(
        settings, "verify", {{"exact", VerifyRule::Exact}, {"rejection", VerifyRule::Rejection}}, VerifyRule::Exact);
    return draft;
}

// Adapts the options to VerifyRule::Rejection. It draws without the noise of drafter-invariant sampling (E2), so
// proposals cannot be ranked by that noise. If all sources are models, children are drawn from the models'
// distributions; two models grow chains that one draws and the other checks. Other children are picked and count as
// point masses.
void choose_rejection(draft::DraftOptions& options) {
    options.noise_ranking = draft::NoiseRanking::Blind;
    const auto draws = [](SourceKind kind) { return kind == SourceKind::Model || kind == SourceKind::Retrieval; };
    if (options.sources.empty() || !std::ranges::all_of(options.sources, draws)) return;
    options.child_rule = draft::ChildRule::Draw;
    if (options.sources.size() > 1 && !options.shape) options.shape = TreeShape::Chain;
}

void choose_budget(DraftSettings& draft, const Settings& settings, DraftPlace place) {
    const Setting* budget = settings.find("budget");
    draft.options.adapt_budget = place == DraftPlace::OnModel && (budget == nullptr || budget->values.back() == "auto");
    if (budget != nullptr && budget->values.back() != "auto") {
        if (budget->values.back().find_first_of("0123456789") == std::string::npos)
            throw UsageError(fmt::format("{}: auto, or a whole number {}, expected, found '{}'", budget->where,
                                         limits_text(Range<std::int64_t>{1, kMaxBudget}), budget->values.back()));
        draft.options.max_budget = *settings.integer("budget", {1, kMaxBudget});
    } else {
        draft.options.max_budget =
            std::max(place == DraftPlace::OnModel ? kAutoBudget : kRecordedBudget, own_nodes(draft.options));
    }
}

std::string draft_help(DraftPlace place) {
    return fmt::format("Sources of draft tokens, separated by commas: {} [auto]", known_sources(place));
}

}  // namespace

std::vector<OptionSpec> draft_option_specs(DraftPlace place) {
    const bool on_model = place == DraftPlace::OnModel;
    static const std::array helps{draft_help(DraftPlace::OnModel), draft_help(DraftPlace::OnRecording)};
    std::vector<OptionSpec> specs{
        {"draft", "--draft", "LIST", helps[on_model ? 0 : 1], OptionRole::Value, known_sources(place)},
        {"budget", "--budget", "N|auto",
         on_model ? "Most tokens in a pass, draft tokens included; auto: as many as pay [auto]"
                  : "Most tokens in a pass, draft tokens included [96]"},
        {"tree", "--tree", "SHAPE", "merged, chain, cacheback, recycling, ngrammys [a lone source's own, else merged]",
         OptionRole::Value, "merged, chain, cacheback, recycling, ngrammys"},
        {"gamma", "--gamma", "N", "Length of a draft chain [adapted to the measured acceptance]"},
        {"lookup-ngram", "--lookup-ngram", "N", "Longest n-gram that 'lookup' searches for [3]"},
        {"cacheback", "--cacheback", "LIST", "Settings of cacheback [ll=1,fl=3,lc=1048576,fc=128,tdl=96,crt=16]"},
        {"frozen-table", "--frozen-table", "F", "Frozen table of cacheback ('tables build' makes one)",
         OptionRole::InputFile},
        {"corpus", "--corpus", "F", "Corpus store ('tables build' makes one)", OptionRole::InputFile},
    };
    if (on_model) {
        specs.insert(specs.begin() + 1, {"draft-model", "--draft-model,--model-draft", "PATH",
                                         "Draft model of the source 'model' [the bundled one for the bundled target]"});
        specs.insert(
            specs.end(),
            {{"kv-budget", "--kv-budget", "N|P%",
              "Tokens in the KV view of 'retrieval', per layer and head; P%: of the context [planned]"},
             {"kv-view", "--kv-view", "KIND",
              "Tokens in the KV view: retrieval (highest attention scores) or window (most recent) [retrieval]",
              OptionRole::Value, "retrieval, window"},
             {"view-type", "--view-type", "TYPE",
              "KV view: f16 (rows in the KV cache's own type), or q4 (4 bits, about four times as many tokens) [auto]",
              OptionRole::Value, "auto, f16, q4"},
             {"view-score", "--view-score", "HOW", "Scores of the KV view: attention mass, or mean keys [mass]",
              OptionRole::Value, "mass, mean"},
             {"view-rebuild", "--view-rebuild", "N",
              "Rebuild the KV view every N tokens; 0: only when it is full [64]"},
             {"tables", "--tables", "DIR|off",
              "Folder of what texts taught: draft tables, chosen experts; off: in memory only [the user's cache]"},
             {"verify", "--verify", "RULE", "exact: the text of plain decoding; rejection: its distribution [exact]",
              OptionRole::Value, "exact, rejection"},
             {"noise-ranking", "--noise-ranking", "HOW",
              "Rank draft tokens by the noise of the draws: aware or blind, to compare [aware]", OptionRole::Value,
              "aware, blind"}});
    }
    return specs;
}

std::optional<std::filesystem::path> tables_folder(const Settings& settings) {
    if (const auto folder = settings.has("tables") ? settings.path("tables") : std::nullopt)
        return *folder == "off" ? std::nullopt : std::optional<std::filesystem::path>(*folder);
    if (const auto cache = settings.environment()("XDG_CACHE_HOME"))
        return std::filesystem::path(*cache) / "slipstream" / "tables";
    if (const auto home = settings.environment()("HOME"))
        return std::filesystem::path(*home) / ".cache" / "slipstream" / "tables";
    return std::nullopt;
}

std::vector<DraftSettings> draft_settings(const Settings& settings, DraftPlace place, DraftLists use,
                                          std::string_view fallback) {
    const Setting* given = settings.find("draft");
    const std::string where = given == nullptr ? "--draft" : given->where;
    std::vector<std::string> lists{std::string(fallback)};
    if (given != nullptr) lists = given->values;
    if (use == DraftLists::Last) lists.erase(lists.begin(), lists.end() - 1);
    const DraftSettings shared = shared_settings(settings, place);

    std::vector<DraftSettings> drafts;
    for (const std::string& list : lists) {
        DraftSettings& draft = drafts.emplace_back(shared);
        draft.list = list;
        draft.automatic = list == "auto";
        if (draft.automatic) {
            draft.options.sources = choose_automatic(settings, place, draft.options.shape);
        } else if (list != "none") {
            draft.options.sources = parse_sources(list, place, where);
        }
        // With a single source and no --tree, --gamma implies a chain.
        if (draft.options.gamma && !draft.options.shape && draft.options.sources.size() == 1)
            draft.options.shape = TreeShape::Chain;
        if (settings.find("tree") != nullptr) check_shape(draft.options, *settings.find("tree"));
        if (draft.options.has(SourceKind::Corpus) && !draft.options.corpus)
            throw UsageError(
                fmt::format("{}: 'corpus' requires a store, --corpus F ('tables build' makes one)", where));
        if (draft.verify == VerifyRule::Rejection) choose_rejection(draft.options);
        choose_budget(draft, settings, place);
    }
    refuse_what_cannot_act(settings, drafts);
    return drafts;
}

draft::CachebackOptions parse_cacheback(std::string_view list, std::string_view where) {
    draft::CachebackOptions options;
    struct Field {
        std::string_view name;
        std::int64_t* value;
        Range<std::int64_t> range;
        bool given = false;
    };
    std::array fields{Field{"ll", &options.leader_tokens, {1, 8}},
                      Field{"fl", &options.follower_tokens, {1, 32}},
                      Field{"lc", &options.max_leaders, {1, std::int64_t{1} << 28}},
                      Field{"fc", &options.max_followers, {1, std::int64_t{1} << 16}},
                      Field{"tdl", &options.tree_tokens, {2, kMaxBudget}},
                      Field{"crt", &options.reserved_tokens, {0, kMaxBudget}}};
    for (const std::string_view item : split_list(list)) {
        const std::size_t equals = std::min(item.find('='), item.size());
        const auto field = std::find_if(fields.begin(), fields.end(),
                                        [&](const Field& known) { return known.name == item.substr(0, equals); });
        if (field == fields.end() || equals == item.size())
            throw UsageError(
                fmt::format("{}: ll, fl, lc, fc, tdl or crt, each as NAME=N, expected, found '{}'", where, item));
        if (std::exchange(field->given, true))
            throw UsageError(fmt::format("{}: {} is given twice", where, field->name));
        const std::string_view text = item.substr(equals + 1);
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *field->value);
        if (error != std::errc() || stop != text.data() + text.size() || *field->value < field->range.lowest ||
            *field->value > field->range.highest)
            throw UsageError(fmt::format("{}: {} is a whole number {}, found '{}'", where, field->name,
                                         limits_text(field->range), text));
    }
    if (options.reserved_tokens >= options.tree_tokens)
        throw UsageError(fmt::format("{}: crt, {}, leaves nothing of tdl, {}, for the first followers; lower it", where,
                                     options.reserved_tokens, options.tree_tokens));
    return options;
}

}  // namespace slipstream::tools
