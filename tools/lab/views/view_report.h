// Figures of KV views that were compared, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_figures.h"
#include "tools/lab/views/view_request.h"

namespace slipstream::tools {

struct ViewFigures {
    ComparedView view = ComparedView::Mass;
    ViewType type = ViewType::Rows;
    std::int64_t budget_tokens = 0;
    double bytes = 0.0;  // of the tokens kept, as a fraction of the bytes of all tokens before the first view
    std::int64_t recent_tokens = 0;  // last tokens that are always kept; unused by a window
    std::int64_t score_rows = 0;     // queries of a pass by whose attention scores the view chooses its tokens
    std::int64_t positions = 0;      // positions at which the view predicted a token
    std::int64_t equal = 0;          // number of `positions` at which the target predicted the same token
    double seconds = 0.0;            // time of passes over the view
    double target_seconds = 0.0;     // time of the target's passes over the same tokens

    [[nodiscard]] double acceptance() const;
    /// Returns the standard error of acceptance(), for independent draws.
    [[nodiscard]] double standard_error() const;
    /// Returns the time of a pass over the view divided by that of a target pass.
    [[nodiscard]] double cost() const;
};

struct ViewsResult {
    BenchResult run;               // machine, model, depth (tokens before the first view) and sampling
    std::int64_t pass_tokens = 0;  // tokens of a pass
    std::vector<ViewFigures> views;
};

/// Returns lines about the machine and the models, then a table with a row for each view of each result. There must be
/// at least one result (CHECKed). Folded for a screen of `columns` columns; 0: no limit.
[[nodiscard]] std::string views_table(const std::vector<ViewsResult>& results, int columns = 0);
/// Returns {"runs": [...]}, as `bench` does. A run has one object per view: view, type, budget, bytes, recent, rows,
/// positions, equal, acceptance, standard_error, seconds, target_seconds, cost.
[[nodiscard]] JsonObject views_json(const std::vector<ViewsResult>& results);

}  // namespace slipstream::tools
