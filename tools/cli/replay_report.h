// What a replay came to, all together and by category, for people and for programs.
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
    /// `recorded`: accept_lengths of the recorded run, empty where it holds none. `ahead` is the drafter's figures
    /// before the conversation.
    void add(const std::string& category, const draft::ReplayFigures& figures, std::span<const std::int64_t> recorded);
    SourceTotals& sources() { return sources_; }

    /// Beside what was asked for: {NAME: TEXT or number} pairs go in front.
    [[nodiscard]] JsonObject json(const std::vector<std::pair<std::string, std::string>>& asked,
                                  std::int64_t budget) const;
    /// A row for each category and one for all, then a line for each source.
    [[nodiscard]] std::string table(int columns = 0) const;

private:
    std::vector<CategoryFigures> categories_;  // by first appearance
    CategoryFigures all_;
    SourceTotals sources_;
    std::int64_t rows_ = 0;        // conversations whose accept_lengths were recorded
    std::int64_t rows_equal_ = 0;  // of them, those that this replay gives too
    std::int64_t recorded_tokens_ = 0;
    std::int64_t recorded_passes_ = 0;
};

}  // namespace slipstream::tools
