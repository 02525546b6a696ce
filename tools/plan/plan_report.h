// The answer of `plan`: what of a model stays on the devices, the time of passes, the memory of the host that is
// needed, the ways that are compared, and the changes that would make passes faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/split_plan.h"
#include "tools/engine/engine.h"
#include "tools/plan/assumed_rates.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

/// Tokens per second if each pass commits `tokens_per_pass` tokens.
struct PlannedRate {
    double tokens_per_pass = 1.0;
    std::int64_t pass_tokens = 1;  // nodes of such a pass
    double tokens_per_second = 0.0;
};

/// A change, and the time of passes with it: of 1 token, and of as many tokens as the plan is for.
struct Improvement {
    std::string what;
    double one_seconds = 0.0;
    double expected_seconds = 0.0;
    double gain = 1.0;  // geometric mean of the speed-ups of both passes
};

/// The part of one of several devices in a pass of 1 token.
struct DeviceWork {
    std::int64_t parts = 0;        // layers or kv heads
    double link_seconds = 0.0;     // to copy over its link what streams
    double compute_seconds = 0.0;  // with everything resident
};

struct PlanReport {
    std::int64_t context_tokens = 0;
    bool context_reduced = false;  // less than the model's own, for want of memory
    SplitPlan plan;
    std::vector<DeviceMemory> memory{};  // [devices]
    std::vector<DeviceWork> devices{};   // where there are several
    SimulatedPass one;                   // a pass of one token, the context full
    SimulatedPass expected;              // of plan.pass_tokens()
    HostNeeds host;
    std::vector<PlannedRate> rates;
    std::optional<AssumedRate> assumed{};
    std::vector<Way> ways{};  // set by compare_ways()

    /// Null if that way is not there.
    [[nodiscard]] const Way* way(WayKind kind) const;
    // Of all devices together.
    [[nodiscard]] std::size_t weights_bytes() const;
    [[nodiscard]] std::size_t kv_bytes() const;
    [[nodiscard]] std::size_t pinned_bytes() const;
};
/// Throws OutOfBudget where a device's budget, or the host's memory, does not hold what it must: with the numbers.
[[nodiscard]] PlanReport make_plan_report(const PlanRequest& request);

/// Sets report.ways, or none if nothing streams. Plans each way anew.
void compare_ways(const PlanRequest& request, PlanReport& report);

/// Single changes, each planned anew, those that help most first; what does not help by 1 % is left out.
[[nodiscard]] std::vector<Improvement> improvements(const PlanRequest& request, const PlanReport& report);

}  // namespace slipstream::tools
