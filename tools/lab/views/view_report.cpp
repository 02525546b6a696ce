#include "tools/lab/views/view_report.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "tools/base/amounts.h"
#include "tools/bench/bench_report.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

std::vector<std::string> row_of(const ViewFigures& view, std::int64_t depth) {
    return {std::string(view_name(view.view)),
            std::string(view_type_name(view.type)),
            fmt::format("{}", view.budget_tokens),
            percent_text(static_cast<double>(view.budget_tokens) / static_cast<double>(depth)),
            percent_text(view.bytes),
            view.view == ComparedView::Window ? "-" : fmt::format("{}", view.recent_tokens),
            view.view == ComparedView::Window ? "-" : fmt::format("{}", view.score_rows),
            fmt::format("{}", view.positions),
            fmt::format("{:.4f}", view.acceptance()),
            fmt::format("{:.4f}", view.standard_error()),
            fmt::format("{:.3f}", view.cost())};
}

std::vector<JsonObject> rows_json(const std::vector<ViewFigures>& views) {
    std::vector<JsonObject> rows;
    for (const ViewFigures& view : views)
        rows.emplace_back()
            .text("view", view_name(view.view))
            .text("type", view_type_name(view.type))
            .integer("budget", view.budget_tokens)
            .real("bytes", view.bytes)
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

std::string views_table(const std::vector<ViewsResult>& results, int columns) {
    CHECK(!results.empty());
    const ViewsResult& first = results.front();
    std::vector<BenchResult> runs;
    for (const ViewsResult& result : results) runs.push_back(result.run);
    const std::string title = fmt::format(
        "views of the KV after {} of a text, {}: how often each chooses the target's token, in passes of {}",
        counted(first.run.depth, "token"), first.run.sampling, first.pass_tokens);
    std::vector<std::string> headers{"view", "type",      "budget",     "% of depth", "% of bytes",      "recent",
                                     "rows", "positions", "acceptance", "+-",         "of target's time"};
    if (first.run.swept) headers.insert(headers.begin(), first.run.swept->first);
    TextTable table(headers);
    for (const ViewsResult& result : results) {
        for (const ViewFigures& view : result.views) {
            std::vector<std::string> cells = row_of(view, result.run.depth);
            if (result.run.swept) cells.insert(cells.begin(), result.run.swept->second);
            table.add(std::move(cells));
        }
    }
    return bench_heading(runs, title, columns) + table.text(columns);
}

JsonObject views_json(const std::vector<ViewsResult>& results) {
    std::vector<JsonObject> runs;
    for (const ViewsResult& result : results) {
        JsonObject run = run_json(result.run, "views");
        run.text("sampling", result.run.sampling)
            .integer("depth", result.run.depth)
            .integer("pass_tokens", result.pass_tokens)
            .objects("views", rows_json(result.views));
        runs.push_back(std::move(run));
    }
    JsonObject json;
    json.objects("runs", runs);
    return json;
}

}  // namespace slipstream::tools
