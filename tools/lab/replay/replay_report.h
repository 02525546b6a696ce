// Results of a replay, in total and by category, as a table and as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/replay.h"
#include "tools/base/json_object.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

struct CategoryFigures {
    std::string name;
    std::int64_t conversations = 0;
    draft::ReplayFigures figures;
};

class ReplayReport {
public:
    /// Adds a conversation. `recorded` are the accept_lengths of the recorded run; empty if the trace has none.
    void add(const std::string& category, const draft::ReplayFigures& figures, std::span<const std::int64_t> recorded);
    SourceTotals& sources() { return sources_; }

    /// Returns the results as JSON. `asked` are pairs {name, text} of what was requested, which come first; `budget` is
    /// the largest number of nodes of a tree.
    [[nodiscard]] JsonObject json(const std::vector<std::pair<std::string, std::string>>& asked,
                                  std::int64_t budget) const;
    /// Returns a table with a row for each category and one for all, then a table of the sources. If the trace has
    /// accept_lengths, a line follows: how many conversations have the same accept_lengths as in the recorded run, and
    /// the mean tokens per pass of that run. `columns` is the width of the terminal in cells; 0: no limit.
    [[nodiscard]] std::string table(int columns = 0) const;

private:
    std::vector<CategoryFigures> categories_;  // in the order of their first conversation
    CategoryFigures all_;
    SourceTotals sources_;
    std::int64_t rows_ = 0;        // conversations with recorded accept_lengths
    std::int64_t rows_equal_ = 0;  // number of conversations (of rows_) whose accept_lengths this replay reproduces
    std::int64_t recorded_tokens_ = 0;
    std::int64_t recorded_passes_ = 0;
};

}  // namespace slipstream::tools
