// Formats the comparison of plain decoding and drafts, as tables for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_figures.h"

namespace slipstream::tools {

/// Returns two tables: a row for each column of each result, plain decoding first, and a row for each draft source of
/// each column. All results must have the same mode. Folded for a screen of `columns` columns; 0: no limit.
[[nodiscard]] std::string drafts_table(const std::vector<BenchResult>& results, int columns);

/// Returns one object per column: draft, budget, tokens, seconds, tokens_per_second, ratio (median of pairs, with
/// ratio_lowest and ratio_highest), ratio_of_sums, passes, tokens_per_pass, nodes_per_pass, draft_seconds,
/// prefill_seconds, sources, texts, texts_equal. `drafts` must begin with plain decoding.
[[nodiscard]] std::vector<JsonObject> drafts_json(const std::vector<DraftFigures>& drafts);

}  // namespace slipstream::tools
