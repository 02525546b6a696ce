// The request of `slipstream-lab views`: which kinds of KV views are compared, their sizes, the tokens that they always
// keep, and the text.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/loop/sampling/sampler.h"
#include "runtime/view/view_builder.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

class Settings;

/// Mass and Mean keep what generation with that --view-score keeps. Heavy is Mass without decay. Oracle chooses by the
/// attention mass of all queries of the pass on which it is judged, which no view can know before the pass: an upper
/// bound for choosing groups.
enum class ComparedView : std::uint8_t { Mass, Mean, Window, Heavy, Oracle };
inline constexpr std::array<std::pair<std::string_view, ComparedView>, 5> kComparedViews{
    {{"mass", ComparedView::Mass},
     {"mean", ComparedView::Mean},
     {"window", ComparedView::Window},
     {"heavy", ComparedView::Heavy},
     {"oracle", ComparedView::Oracle}}};
[[nodiscard]] std::string_view view_name(ComparedView view);
/// Returns whether score_rows and recent_tokens apply to the view: some queries of a pass choose its tokens.
[[nodiscard]] bool is_chosen_by_rows(ComparedView view);

/// A number of tokens, or a percentage of a view's budget.
struct RecentTokens {
    std::int64_t tokens = 0;
    std::int64_t percent = 0;  // percentage of the budget, used if > 0
    [[nodiscard]] std::int64_t of(std::int64_t budget_tokens) const;
};

struct ViewsRequest {
    ComputeOptions compute;
    SamplerOptions sampling;                       // without filters: draws from the whole distribution
    std::filesystem::path file;                    // empty: the text is that of the session
    std::optional<std::filesystem::path> session;  // its text and KV are used
    std::optional<std::int64_t> depth;             // tokens of the text before the first view
    std::optional<std::int64_t> max_tokens;        // positions to compare
    std::vector<ComparedView> views;
    std::vector<ViewType> types;  // each makes a view of its own
    // Of each view, in tokens; empty: 3, 6 and 12 % of the context depth (view_budgets()).
    std::vector<std::int64_t> budgets;
    // For the views mass, mean and heavy; each makes a view of its own. Empty: recent_percent() of the type.
    std::vector<RecentTokens> recents;
    std::int64_t sink_tokens = 0;
    std::int64_t rebuild_tokens = 0;       // tokens between rebuilds; 0: built once
    double half_life_tokens = 0.0;         // for the views mass and mean: a query's weight halves after so many tokens
    std::vector<std::int64_t> score_rows;  // for the views mass, mean and heavy; each makes a view of its own
};

/// Most tokens of a measured pass over a KV view: the length of a long draft chain.
inline constexpr std::int64_t kViewPassTokens = 64;
/// Returns the number of tokens of a measured pass. A view is rebuilt in a pass, so a pass has at most rebuild_tokens
/// tokens.
[[nodiscard]] std::int64_t view_pass_tokens(const ViewsRequest& request);
/// Returns the requested budgets or, without any, 3, 6 and 12 % of `depth`, rounded up to whole slot groups.
[[nodiscard]] std::vector<std::int64_t> view_budgets(const ViewsRequest& request, std::int64_t depth);

/// Declares the options of which views are compared, and on which text.
[[nodiscard]] std::vector<OptionSpec> view_option_specs();
/// Reads the options. Throws UsageError if a value is malformed, if --views or the text is missing, or if an option has
/// no effect on any of the views.
[[nodiscard]] ViewsRequest views_request(const Settings& settings);

}  // namespace slipstream::tools
