// What each source offered, over several runs of one drafter, whether or not it was reset between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "tools/base/json_object.h"

namespace slipstream::tools {

struct SourceTotal {
    std::string name;
    std::int64_t offered = 0;
    std::int64_t accepted = 0;
    double seconds = 0.0;
    std::optional<std::int64_t> passes{};  // of a source that makes passes of its own

    /// accepted / offered; 0 where nothing was offered.
    [[nodiscard]] double acceptance() const;
};

class SourceTotals {
public:
    SourceTotals() = default;
    /// All that `figures` hold.
    explicit SourceTotals(const std::vector<draft::SourceFigures>& figures) { add({}, figures); }

    /// Adds a run: what the figures were when it began, and at its end.
    void add(const std::vector<draft::SourceFigures>& before, const std::vector<draft::SourceFigures>& after);
    [[nodiscard]] const std::vector<SourceTotal>& totals() const { return totals_; }
    /// {NAME: {"offered": N, "accepted": N, "seconds": X}}.
    [[nodiscard]] JsonObject json() const;
    /// [{"name": NAME, "passes": N, "offered": N, "accepted": N}] of those with passes of their own, cheap to dear.
    [[nodiscard]] std::vector<JsonObject> levels() const;

private:
    std::vector<SourceTotal> totals_;  // in the drafter's order
};

}  // namespace slipstream::tools
