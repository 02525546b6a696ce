// What bench --views compares: kinds of views, how large they are, and what they always keep.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/view/view_builder.h"
#include "tools/options/options.h"

namespace slipstream::tools {

class Settings;

/// Mass and Mean: what the option of that name of generation keeps. Oracle: by the attention mass of all queries of the
/// very pass that it is judged on, which no view knows that guesses: what choosing groups can come to.
enum class ComparedView : std::uint8_t { Mass, Mean, Window, Heavy, Oracle };
inline constexpr std::array<std::pair<std::string_view, ComparedView>, 5> kComparedViews{
    {{"mass", ComparedView::Mass},
     {"mean", ComparedView::Mean},
     {"window", ComparedView::Window},
     {"heavy", ComparedView::Heavy},
     {"oracle", ComparedView::Oracle}}};
[[nodiscard]] std::string_view view_name(ComparedView view);
/// Whether some queries of a pass choose.
[[nodiscard]] bool is_chosen_by_rows(ComparedView view);

/// Tokens, or a share of a view's budget.
struct RecentTokens {
    std::int64_t tokens = 0;
    std::int64_t percent = 0;  // > 0: of the budget
    [[nodiscard]] std::int64_t of(std::int64_t budget_tokens) const;
};

struct ViewsRequest {
    std::vector<ComparedView> views;
    std::filesystem::path file;         // empty: a session is the text
    std::vector<std::int64_t> budgets;  // tokens, whole groups; empty: shares of the depth
    std::vector<RecentTokens> recents;  // of what scores choose: a view each
    std::int64_t sink_tokens = 0;
    std::int64_t rebuild_tokens = 0;       // 0: built once
    double half_life_tokens = 0.0;         // of mass and mean
    std::vector<std::int64_t> score_rows;  // of mass, mean and heavy: a view each
};

/// Tokens of a pass at most: those of a long chain of guesses.
inline constexpr std::int64_t kViewPassTokens = 64;
/// Of a pass: a view is built anew in a pass, so it is as short as the building wants it.
[[nodiscard]] std::int64_t view_pass_tokens(const ViewsRequest& request);
/// The budgets at that depth.
[[nodiscard]] std::vector<std::int64_t> view_budgets(const ViewsRequest& request, std::int64_t depth);

/// --views and what acts with it alone.
[[nodiscard]] std::vector<OptionSpec> view_option_specs();
/// Of settings with --views. Throws UsageError where a value is malformed, the text is missing, or an option cannot
/// act on any of the views.
[[nodiscard]] ViewsRequest views_request(const Settings& settings);

}  // namespace slipstream::tools
