// The answer of `plan` for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/model_plan.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/plan_request.h"
#include "tools/terminal/json_object.h"

namespace slipstream::tools {

/// `plan` as it stands in statistics: of one device.
[[nodiscard]] JsonObject residency_json(const ModelPlan& plan);

/// For a screen of `columns`; 0: no limit.
[[nodiscard]] std::string plan_text(const PlanRequest& request, const PlanReport& report,
                                    const std::vector<Improvement>& helps, int columns = 0);
[[nodiscard]] std::string plan_json(const PlanRequest& request, const PlanReport& report,
                                    const std::vector<Improvement>& helps);

}  // namespace slipstream::tools
