#include "tools/lab/replay/replay_report.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

double mean_nodes(const draft::ReplayFigures& figures) {
    return figures.passes > 0 ? static_cast<double>(figures.nodes) / static_cast<double>(figures.passes) : 0.0;
}

double draft_us_per_pass(const draft::ReplayFigures& figures) {
    const double seconds = figures.propose_seconds + figures.observe_seconds;
    return figures.passes > 0 ? 1e6 * seconds / static_cast<double>(figures.passes) : 0.0;
}

std::vector<std::string> row_of(const CategoryFigures& category) {
    const draft::ReplayFigures& figures = category.figures;
    return {category.name.empty() ? "-" : category.name,
            fmt::format("{}", category.conversations),
            fmt::format("{}", figures.tokens),
            fmt::format("{}", figures.passes),
            fmt::format("{:.3f}", figures.mean_accepted_tokens()),
            fmt::format("{:.1f}", mean_nodes(figures)),
            fmt::format("{:.1f}", draft_us_per_pass(figures))};
}

JsonObject category_json(const CategoryFigures& category) {
    JsonObject json;
    json.integer("conversations", category.conversations)
        .integer("generated_tokens", category.figures.tokens)
        .integer("passes", category.figures.passes)
        .real("mean_accepted_tokens", category.figures.mean_accepted_tokens());
    return json;
}

}  // namespace

void ReplayReport::add(const std::string& category, const draft::ReplayFigures& figures,
                       std::span<const std::int64_t> recorded) {
    auto own = std::find_if(categories_.begin(), categories_.end(),
                            [&](const CategoryFigures& known) { return known.name == category; });
    if (own == categories_.end()) own = categories_.insert(own, CategoryFigures{category, 0, {}});
    for (CategoryFigures* sum : {&*own, &all_}) {
        ++sum->conversations;
        sum->figures += figures;
    }
    if (recorded.empty()) return;
    ++rows_;
    if (std::ranges::equal(recorded, figures.accept_lengths)) ++rows_equal_;
    recorded_tokens_ = std::accumulate(recorded.begin(), recorded.end(), recorded_tokens_);
    recorded_passes_ += static_cast<std::int64_t>(recorded.size());
}

JsonObject ReplayReport::json(const std::vector<std::pair<std::string, std::string>>& asked,
                              std::int64_t budget) const {
    JsonObject json;
    for (const auto& [name, value] : asked) json.text(name, value);
    json.integer("budget", budget)
        .integer("conversations", all_.conversations)
        .integer("generated_tokens", all_.figures.tokens)
        .integer("passes", all_.figures.passes)
        .real("mean_accepted_tokens", all_.figures.mean_accepted_tokens())
        .real("budget_mean", mean_nodes(all_.figures))
        .object("sources", sources_.json());
    JsonObject split;
    split.real("propose_seconds", all_.figures.propose_seconds).real("observe_seconds", all_.figures.observe_seconds);
    json.object("split", split);
    JsonObject by_category;
    for (const CategoryFigures& category : categories_) by_category.object(category.name, category_json(category));
    json.object("by_category", by_category);
    if (rows_ > 0)
        json.integer("rows", rows_)
            .integer("rows_equal", rows_equal_)
            .real("recorded_mean_accepted_tokens",
                  static_cast<double>(recorded_tokens_) / static_cast<double>(recorded_passes_));
    return json;
}

std::string ReplayReport::table(int columns) const {
    TextTable table({"category", "conversations", "tokens", "passes", "MAT", "nodes/pass", "drafting us/pass"});
    for (const CategoryFigures& category : categories_) table.add(row_of(category));
    CategoryFigures all = all_;
    all.name = "all";
    table.add(row_of(all));
    std::string text = table.text(columns);
    if (!sources_.totals().empty()) {
        TextTable sources({"source", "offered", "accepted", "%", "seconds"});
        for (const SourceTotal& total : sources_.totals())
            sources.add({total.name, fmt::format("{}", total.offered), fmt::format("{}", total.accepted),
                         percent_text(total.acceptance()), number_text(total.seconds)});
        text += fmt::format("\n{}", sources.text(columns));
    }
    if (rows_ > 0)
        text += fmt::format("\nas recorded: {} of {} conversations pass for pass; the recorded run's MAT is {:.3f}\n",
                            rows_equal_, rows_,
                            static_cast<double>(recorded_tokens_) / static_cast<double>(recorded_passes_));
    return text;
}

}  // namespace slipstream::tools
