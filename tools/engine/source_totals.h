// What each draft source offered, summed over several runs of one drafter, whether or not it was reset between them.
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
    std::optional<std::int64_t> passes{};  // only of sources that run passes of their own

    /// Returns accepted / offered; 0 if nothing was offered.
    [[nodiscard]] double acceptance() const;
};

class SourceTotals {
public:
    SourceTotals() = default;
    /// Totals of one run that ended with `figures`.
    explicit SourceTotals(const std::vector<draft::SourceFigures>& figures) { add({}, figures); }

    /// Adds a run: `before` are the figures when it began, `after` those at its end.
    void add(const std::vector<draft::SourceFigures>& before, const std::vector<draft::SourceFigures>& after);
    [[nodiscard]] const std::vector<SourceTotal>& totals() const { return totals_; }
    /// Returns {NAME: {"offered": N, "accepted": N, "seconds": X}}.
    [[nodiscard]] JsonObject json() const;
    /// Returns [{"name": NAME, "passes": N, "offered": N, "accepted": N}] of the sources with passes of their own,
    /// cheapest first.
    [[nodiscard]] std::vector<JsonObject> levels() const;

private:
    std::vector<SourceTotal> totals_;  // in the drafter's order
};

}  // namespace slipstream::tools
