// Formats the answer of `plan`, as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/plan_report.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

enum class PlanDetail : std::uint8_t { Figures, Formulas };

/// Returns the report as text, folded for a screen of `columns` columns (0: not folded). PlanDetail::Formulas adds the
/// formulas of --assume.
[[nodiscard]] std::string plan_text(const PlanRequest& request, const PlanReport& report,
                                    const std::vector<Improvement>& helps, PlanDetail detail, int columns = 0);
[[nodiscard]] std::string plan_json(const PlanRequest& request, const PlanReport& report,
                                    const std::vector<Improvement>& helps);

}  // namespace slipstream::tools
