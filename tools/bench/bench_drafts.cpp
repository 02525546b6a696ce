#include "tools/bench/bench_drafts.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tools/terminal/folded_text.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

double ratio_of_sums(const DraftFigures& column, const DraftFigures& plain) {
    return plain.tokens_per_second() > 0.0 ? column.tokens_per_second() / plain.tokens_per_second() : 0.0;
}

double draft_us_per_pass(const DraftFigures& column) {
    return column.passes > 0 ? 1e6 * column.draft_seconds / static_cast<double>(column.passes) : 0.0;
}

// Inserts the swept value as the first cell if there is a sweep.
std::vector<std::string> cells_of(const BenchResult& result, std::vector<std::string> cells) {
    if (result.swept) cells.insert(cells.begin(), result.swept->second);
    return cells;
}

std::vector<std::string> row_of(const DraftFigures& column, const DraftFigures& plain) {
    const auto ratio = paired_ratio(column, plain);
    const bool compared = column.texts > 0;
    return {column.list,
            fmt::format("{}", column.budget),
            fmt::format("{}", column.tokens()),
            number_text(column.tokens_per_second()),
            ratio ? fmt::format("{:.3f}", ratio->median) : "-",
            ratio ? fmt::format("{:.3f}", ratio->lowest) : "-",
            fmt::format("{:.3f}", ratio_of_sums(column, plain)),
            fmt::format("{:.3f}", column.tokens_per_pass()),
            fmt::format("{:.1f}", column.nodes_per_pass()),
            fmt::format("{:.1f}", draft_us_per_pass(column)),
            compared ? fmt::format("{} of {}", column.texts_equal, column.texts) : "-"};
}

}  // namespace

std::string drafts_table(const std::vector<BenchResult>& results, int columns) {
    const BenchResult& first = results.front();
    std::vector<std::string> headers{"draft",   "budget",      "tokens",     "tokens/s",      "ratio",      "lowest",
                                     "of sums", "tokens/pass", "nodes/pass", "draft us/pass", "equal texts"};
    std::vector<std::string> source_headers{"draft", "source", "offered", "accepted", "%", "us/pass"};
    if (first.swept)
        for (auto* names : {&headers, &source_headers}) names->insert(names->begin(), first.swept->first);
    TextTable table(headers);
    TextTable sources(source_headers);
    for (const BenchResult& result : results) {
        for (const DraftFigures& column : result.drafts) {
            table.add(cells_of(result, row_of(column, result.drafts.front())));
            for (const SourceTotal& source : column.sources.totals())
                sources.add(cells_of(
                    result,
                    {column.list, source.name, fmt::format("{}", source.offered), fmt::format("{}", source.accepted),
                     percent_text(source.acceptance()),
                     fmt::format("{:.2f}", column.passes > 0 ? 1e6 * source.seconds / static_cast<double>(column.passes)
                                                             : 0.0)}));
        }
    }
    const bool alike =
        std::ranges::all_of(results, [&](const BenchResult& result) { return result.sampling == first.sampling; });
    const std::string title = fmt::format("speculative decoding, {}; ratio to plain decoding: median of pairs\n\n",
                                          alike ? std::string_view(first.sampling) : "sampling as swept");
    return fmt::format("{}{}\n{}", folded(title, columns), table.text(columns), sources.text(columns));
}

std::vector<JsonObject> drafts_json(const std::vector<DraftFigures>& drafts) {
    std::vector<JsonObject> rows;
    for (const DraftFigures& column : drafts) {
        JsonObject& json = rows.emplace_back();
        json.text("draft", column.list)
            .integer("budget", column.budget)
            .integer("tokens", column.tokens())
            .real("seconds", column.seconds())
            .real("tokens_per_second", column.tokens_per_second());
        if (const auto ratio = paired_ratio(column, drafts.front())) {
            json.real("ratio", ratio->median).real("ratio_lowest", ratio->lowest).real("ratio_highest", ratio->highest);
        } else {
            json.null("ratio").null("ratio_lowest").null("ratio_highest");
        }
        double prefill_seconds = 0.0;
        for (const PhaseSample& sample : column.prefill) prefill_seconds += sample.seconds;
        json.real("ratio_of_sums", ratio_of_sums(column, drafts.front()))
            .integer("passes", column.passes)
            .real("tokens_per_pass", column.tokens_per_pass())
            .real("nodes_per_pass", column.nodes_per_pass())
            .real("draft_seconds", column.draft_seconds)
            .real("prefill_seconds", prefill_seconds)
            .object("sources", column.sources.json())
            .integer("texts", column.texts)
            .integer("texts_equal", column.texts_equal);
    }
    return rows;
}

}  // namespace slipstream::tools
