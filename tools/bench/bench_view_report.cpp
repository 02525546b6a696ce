#include "tools/bench/bench_view_report.h"

#include <cmath>

#include <fmt/format.h>

#include "tools/bench/bench_figures.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

std::vector<std::string> row_of(const ViewFigures& view, std::int64_t depth) {
    return {std::string(view_name(view.view)),
            fmt::format("{}", view.budget_tokens),
            percent_text(static_cast<double>(view.budget_tokens) / static_cast<double>(depth)),
            view.view == ComparedView::Window ? "-" : fmt::format("{}", view.recent_tokens),
            view.view == ComparedView::Window ? "-" : fmt::format("{}", view.score_rows),
            fmt::format("{}", view.positions),
            fmt::format("{:.4f}", view.acceptance()),
            fmt::format("{:.4f}", view.standard_error()),
            fmt::format("{:.3f}", view.cost())};
}

}  // namespace

double ViewFigures::acceptance() const {
    return positions > 0 ? static_cast<double>(equal) / static_cast<double>(positions) : 0.0;
}

double ViewFigures::standard_error() const {
    const double p = acceptance();
    return positions > 0 ? std::sqrt(p * (1.0 - p) / static_cast<double>(positions)) : 0.0;
}

double ViewFigures::cost() const {
    return target_seconds > 0.0 ? seconds / target_seconds : 0.0;
}

std::string views_table(const std::vector<BenchResult>& results, int columns) {
    std::vector<std::string> headers{"view",      "budget",     "% of depth", "recent",          "rows",
                                     "positions", "acceptance", "+-",         "of target's time"};
    if (results.front().swept) headers.insert(headers.begin(), results.front().swept->first);
    TextTable table(headers);
    for (const BenchResult& result : results) {
        for (const ViewFigures& view : result.views) {
            std::vector<std::string> cells = row_of(view, result.depth);
            if (result.swept) cells.insert(cells.begin(), result.swept->second);
            table.add(std::move(cells));
        }
    }
    return table.text(columns);
}

std::vector<JsonObject> views_json(const std::vector<ViewFigures>& views) {
    std::vector<JsonObject> rows;
    for (const ViewFigures& view : views)
        rows.emplace_back()
            .text("view", view_name(view.view))
            .integer("budget", view.budget_tokens)
            .integer("recent", view.recent_tokens)
            .integer("rows", view.score_rows)
            .integer("positions", view.positions)
            .integer("equal", view.equal)
            .real("acceptance", view.acceptance())
            .real("standard_error", view.standard_error())
            .real("seconds", view.seconds)
            .real("target_seconds", view.target_seconds)
            .real("cost", view.cost());
    return rows;
}

}  // namespace slipstream::tools
