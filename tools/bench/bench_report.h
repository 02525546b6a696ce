// Formats the result of a benchmark: an aligned table with units in its headers for people, JSON for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_figures.h"

namespace slipstream::tools {

/// Returns lines about the machine and the models, then one table with a row for every phase or pass of every run.
/// There must be at least one result (CHECKed), and all must have the same mode. Folded for a screen of `columns`
/// columns; 0: no limit.
[[nodiscard]] std::string bench_table(const std::vector<BenchResult>& results, int columns = 0);

/// Returns the lines above a table: version, machine and models of `results` (at least one, CHECKed), then `title`,
/// which says what was measured.
[[nodiscard]] std::string bench_heading(const std::vector<BenchResult>& results, std::string_view title, int columns);

/// Returns the fields of a run that are the same in every mode; `mode` is the mode's name.
[[nodiscard]] JsonObject run_json(const BenchResult& result, std::string_view mode);

/// Returns {"runs": [...]}, a complete entry per result: version, commit, cpu, form (kernel variant), threads, measured
/// peaks, model, and its phases or passes with median, lowest and highest of their samples. Times are in seconds, sizes
/// in bytes.
[[nodiscard]] JsonObject bench_json(const std::vector<BenchResult>& results);

}  // namespace slipstream::tools
