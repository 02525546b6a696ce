// What a comparison of drafts came to, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_figures.h"

namespace slipstream::tools {

/// A row for each column of each result, plain decoding first, then a row for each of their sources. All results are of
/// one mode. For a screen of `columns`; 0: no limit.
[[nodiscard]] std::string drafts_table(const std::vector<BenchResult>& results, int columns);

/// One object a column: draft, budget, tokens, seconds, tokens_per_second, ratio (median of pairs, with its lowest and
/// highest), ratio_of_sums, passes, tokens_per_pass, nodes_per_pass, draft_seconds, prefill_seconds, sources, texts,
/// texts_equal.
[[nodiscard]] std::vector<JsonObject> drafts_json(const std::vector<DraftFigures>& drafts);

}  // namespace slipstream::tools
