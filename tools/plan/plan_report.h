// The answer of `plan` for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/model_plan.h"
#include "tools/cli/json_object.h"
#include "tools/plan/plan_answer.h"
#include "tools/plan/plan_question.h"

namespace slipstream::tools {

/// `plan` as it stands in statistics: of one device.
[[nodiscard]] JsonObject residency_json(const ModelPlan& plan);

[[nodiscard]] std::string plan_text_report(const PlanQuestion& question, const PlanAnswer& answer,
                                           const std::vector<Improvement>& helps);
[[nodiscard]] std::string plan_json_report(const PlanQuestion& question, const PlanAnswer& answer,
                                           const std::vector<Improvement>& helps);

}  // namespace slipstream::tools
