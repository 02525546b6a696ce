// What a comparison of views came to, for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_view_request.h"

namespace slipstream::tools {

struct BenchResult;

struct ViewFigures {
    ComparedView view = ComparedView::Mass;
    std::int64_t budget_tokens = 0;
    std::int64_t recent_tokens = 0;  // that it keeps anyway; of a window nobody asks
    std::int64_t score_rows = 0;     // queries of a pass that choose
    std::int64_t positions = 0;      // that it chose a token for
    std::int64_t equal = 0;          // of them, those where the target chose the same
    double seconds = 0.0;            // of its passes
    double target_seconds = 0.0;     // of the target's passes over the same tokens

    [[nodiscard]] double acceptance() const;
    /// Of the acceptance, as of independent draws.
    [[nodiscard]] double standard_error() const;
    /// A pass of it over a pass of the target.
    [[nodiscard]] double cost() const;
};

/// A row for each view of each result.
[[nodiscard]] std::string views_table(const std::vector<BenchResult>& results, int columns);
/// One object a view: view, budget, recent, rows, positions, equal, acceptance, standard_error, seconds,
/// target_seconds, cost.
[[nodiscard]] std::vector<JsonObject> views_json(const std::vector<ViewFigures>& views);

}  // namespace slipstream::tools
