// What a bench found, for people (an aligned table with units in its headers) and for programs (JSON).
#pragma once

#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/bench/bench_figures.h"

namespace slipstream::tools {

/// Lines on the machine and the models, then one table with a row for every phase or pass of every run. All results are
/// of one mode; at least one. For a screen of `columns`; 0: no limit.
[[nodiscard]] std::string bench_table(const std::vector<BenchResult>& results, int columns = 0);

/// {"runs": [...]}: a run for each result, complete in itself: version, commit, cpu, form, threads, measured peaks,
/// model, and its phases or passes with median, lowest and highest of their samples. Times in seconds, sizes in bytes.
[[nodiscard]] JsonObject bench_json(const std::vector<BenchResult>& results);

}  // namespace slipstream::tools
