#include "tools/lab/views/view_request.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/lab/lab_settings.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMostCount = std::int64_t{1} << 30;  // of positions
constexpr std::uint64_t kSeed = 1;
constexpr std::array<std::int64_t, 3> kBudgetPercents{3, 6, 12};  // percent of the depth

// Returns the items of a comma-separated list. `read` parses one item and returns whether it is valid. Throws
// UsageError.
template <typename T>
std::vector<T> read_list(const Setting& setting, std::string_view expected,
                         const std::function<bool(std::string_view, T&)>& read) {
    const std::string_view list = setting.values.back();
    std::vector<T> items;
    for (const std::string_view item : split_list(list))
        if (!read(item, items.emplace_back()))
            throw UsageError(
                fmt::format("{}: {}, separated by commas, expected, found '{}'", setting.where, expected, list));
    return items;
}

bool read_number(std::string_view text, std::int64_t lowest, std::int64_t highest, std::int64_t& n) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc() && stop == text.data() + text.size() && n >= lowest && n <= highest;
}

bool read_view(std::string_view text, ComparedView& view) {
    const auto* known = std::ranges::find(kComparedViews, text, &std::pair<std::string_view, ComparedView>::first);
    if (known == kComparedViews.end()) return false;
    view = known->second;
    return true;
}

bool read_type(std::string_view text, ViewType& type) {
    type = text == view_type_name(ViewType::Q4) ? ViewType::Q4 : ViewType::Rows;
    return text == view_type_name(type);
}

bool read_budget(std::string_view text, std::int64_t& tokens) {
    if (!read_number(text, kGroupTokens, kMostTokens, tokens)) return false;
    tokens = round_up(tokens, kGroupTokens);
    return true;
}

bool read_recent(std::string_view text, RecentTokens& recent) {
    if (text.ends_with('%')) return read_number(text.substr(0, text.size() - 1), 1, 100, recent.percent);
    return read_number(text, 0, kMostTokens, recent.tokens);
}

// An option that has an effect only on some views.
struct BoundOption {
    std::string_view name;
    bool (*acts)(ComparedView);
    std::string_view wanted;
};
bool is_rebuilt(ComparedView view) {
    return view != ComparedView::Oracle;
}
constexpr std::array kBound{
    BoundOption{"view-recent", is_chosen_by_rows, "on mass, mean and heavy"},
    BoundOption{"view-rebuild", is_rebuilt, "on mass, mean, window and heavy"},
    BoundOption{"view-half-life",
                [](ComparedView view) { return view == ComparedView::Mass || view == ComparedView::Mean; },
                "on mass and mean"},
    BoundOption{"view-rows", is_chosen_by_rows, "on mass, mean and heavy"}};

// Greedy unless a temperature is given, and with a fixed seed, so that figures can be compared. No filters: views are
// compared by draws from the whole distribution.
SamplerOptions views_sampling(const Settings& settings) {
    return {.temperature = settings.real("temperature", kTemperatureRange).value_or(0.0),
            .top_k = 0,
            .top_p = 1.0,
            .seed = settings.unsigned_integer("seed", "").value_or(kSeed)};
}

}  // namespace

std::string_view view_name(ComparedView view) {
    return std::ranges::find(kComparedViews, view, &std::pair<std::string_view, ComparedView>::second)->first;
}

bool is_chosen_by_rows(ComparedView view) {
    return view == ComparedView::Mass || view == ComparedView::Mean || view == ComparedView::Heavy;
}

std::int64_t RecentTokens::of(std::int64_t budget_tokens) const {
    return percent > 0 ? budget_tokens * percent / 100 : tokens;
}

std::int64_t view_pass_tokens(const ViewsRequest& request) {
    return request.rebuild_tokens > 0 ? std::min(kViewPassTokens, request.rebuild_tokens) : kViewPassTokens;
}

std::vector<std::int64_t> view_budgets(const ViewsRequest& request, std::int64_t depth) {
    if (!request.budgets.empty()) return request.budgets;
    std::vector<std::int64_t> budgets;
    for (const std::int64_t percent : kBudgetPercents)
        budgets.push_back(round_up(std::max<std::int64_t>(depth * percent / 100, 1), kGroupTokens));
    const auto equal = std::ranges::unique(budgets);
    budgets.erase(equal.begin(), equal.end());
    return budgets;
}

std::vector<OptionSpec> view_option_specs() {
    return {{"views", "--views", "LIST", "Views to compare: mass, mean, window, heavy, oracle"},
            {"file", "-f,--file", "F", "File with the text", OptionRole::InputFile},
            {"view-budgets", "--view-budgets", "LIST", "Tokens of views [3, 6 and 12 % of the depth]"},
            {"view-types", "--view-types", "LIST", "Types of the views: f16, q4 [f16]"},
            {"view-recent", "--view-recent", "LIST",
             "Last tokens that they keep anyway; 50%: of the budget [75%, of q4 25%]"},
            {"view-sinks", "--view-sinks", "N", "First tokens that they keep anyway [16]"},
            {"view-half-life", "--view-half-life", "N",
             "Tokens after which the weight of a query's scores is halved; 0: only the last pass counts [256]"},
            {"view-rows", "--view-rows", "LIST", "Queries of a pass that choose [1]"}};
}

ViewsRequest views_request(const Settings& settings) {
    const ViewOptions built_in;
    if (settings.find("views") == nullptr)
        throw UsageError("--views is missing: a list of mass, mean, window, heavy and oracle");
    ViewsRequest request;
    request.compute = compute_options(settings);
    request.sampling = views_sampling(settings);
    request.depth = settings.integer("depth", {0, kMostCount});
    request.max_tokens = settings.integer("max-tokens", {1, kMostCount});
    request.views = read_list<ComparedView>(*settings.find("views"), "mass, mean, window, heavy or oracle", read_view);
    const auto file = settings.path("file");
    if (const auto session = settings.path("session")) {
        if (const Setting* text = settings.on_command_line("file"))
            throw UsageError(
                fmt::format("{} does not go with --session, whose text is there; give one of them", text->where));
        request.session = *session;
    } else if (!file) {
        throw UsageError(fmt::format("{} requires a text, --file F or --session F", settings.find("views")->where));
    }
    request.file = file.value_or("");
    if (const Setting* budgets = settings.find("view-budgets"))
        request.budgets = read_list<std::int64_t>(
            *budgets, fmt::format("numbers of tokens from {} to {}", kGroupTokens, kMostTokens), read_budget);
    request.types = {ViewType::Rows};
    if (const Setting* types = settings.find("view-types"))
        request.types = read_list<ViewType>(*types, "f16 or q4", read_type);
    if (const Setting* recents = settings.find("view-recent"))
        request.recents = read_list<RecentTokens>(
            *recents,
            fmt::format("numbers of tokens from 0 to {}, or shares of the budget from 1% to 100%", kMostTokens),
            read_recent);
    request.sink_tokens = settings.integer("view-sinks", {0, kMostTokens}).value_or(built_in.sink_tokens);
    request.rebuild_tokens = settings.integer("view-rebuild", {0, kMostTokens}).value_or(built_in.rebuild_tokens);
    request.half_life_tokens = static_cast<double>(settings.integer("view-half-life", {0, kMostTokens})
                                                       .value_or(static_cast<std::int64_t>(built_in.half_life_tokens)));
    request.score_rows = {built_in.score_rows};
    if (const Setting* rows = settings.find("view-rows")) request.score_rows = number_list(*rows, {1, kViewPassTokens});
    for (const BoundOption& bound : kBound)
        if (const Setting* setting = settings.on_command_line(bound.name);
            setting != nullptr && std::ranges::none_of(request.views, bound.acts))
            throw UsageError(fmt::format("{} has an effect only {}; remove it", setting->where, bound.wanted));
    return request;
}

}  // namespace slipstream::tools
