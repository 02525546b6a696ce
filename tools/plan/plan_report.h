// The answer of `plan`: what stays on the devices, the time of passes, the host memory that is needed, a comparison of
// the ways to run the model, and changes that would make passes faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/expert_plan.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine.h"
#include "tools/plan/assumed_rates.h"
#include "tools/plan/plan_request.h"

namespace slipstream::tools {

/// Tokens per second if each pass commits `tokens_per_pass` tokens.
struct PlannedRate {
    double tokens_per_pass = 1.0;
    std::int64_t pass_tokens = 1;  // nodes of each pass
    double tokens_per_second = 0.0;
};

/// A change of hardware or model, with the times of passes of 1 token and of plan.pass_tokens() tokens after it.
struct Improvement {
    std::string what;
    double one_seconds = 0.0;
    double expected_seconds = 0.0;
    double gain = 1.0;  // factor: geometric mean of the speed-ups of the two passes
};

/// What one more GiB of memory on each device would bring.
struct OneMoreGib {
    double tokens_per_second = 0.0;  // of passes of 1 token
    double expected_seconds = 0.0;   // of a pass of SplitPlan::pass_tokens() tokens
    double hits = 0.0;               // as ExpertPlan::hits
    std::size_t ring_bytes = 0;      // of all devices
    ExpertRegime regime = ExpertRegime::Fit;
};

/// The work of one of several devices in a pass of 1 token.
struct DeviceWork {
    std::int64_t parts = 0;  // layers or kv heads
    // Of a pass of one token at full context; of experts, what is expected.
    double streamed_bytes = 0.0;
    double link_seconds = 0.0;     // time to copy streamed_bytes over the device's link
    double compute_seconds = 0.0;  // time to compute, if everything were resident
};

struct PlanReport {
    std::int64_t context_tokens = 0;
    bool context_reduced = false;  // the model's own context was reduced because memory is short
    SplitPlan plan;
    ExpertPlan experts{};                // of `plan`
    std::string fixed_experts_note{};    // as PlanWithin::fixed_note
    std::vector<DeviceMemory> memory{};  // [devices]
    std::vector<DeviceWork> devices{};   // [devices]; empty if there is only one device
    SimulatedPass one;                   // a pass of 1 token with the context full
    SimulatedPass expected;              // a pass of plan.pass_tokens() tokens
    HostNeeds host;
    std::vector<PlannedRate> rates;
    std::optional<AssumedRate> assumed{};
    std::vector<Way> ways{};                   // set by compare_ways()
    std::optional<OneMoreGib> one_more_gib{};  // set by plan_one_more_gib()

    /// Returns the way of that kind, or null if `ways` lacks it.
    [[nodiscard]] const Way* way(WayKind kind) const;
    // weights_bytes(), kv_bytes() and pinned_bytes() return sums over all devices.

    [[nodiscard]] std::size_t weights_bytes() const;
    [[nodiscard]] std::size_t kv_bytes() const;
    [[nodiscard]] std::size_t pinned_bytes() const;
};
/// Sets request.miss_factor so that the plan has request.assumed_hits. Throws RequestError if the plan has no slots for
/// experts, too few for so many hits, or so many experts that stay on a device that hits cannot be so few. Does nothing
/// if there are no assumed hits, or if make_plan_report() will throw OutOfBudget.
void assume_hits(PlanRequest& request);

/// Plans the request. Throws OutOfBudget, with the numbers, if a device's budget or the host's memory is too small.
[[nodiscard]] PlanReport make_plan_report(const PlanRequest& request);

/// Sets report.ways; empty if nothing streams. Plans each way anew.
void compare_ways(const PlanRequest& request, PlanReport& report);

/// Sets report.one_more_gib if some experts are copied, and the host's memory allows the change. Plans anew.
void plan_one_more_gib(const PlanRequest& request, PlanReport& report);

/// Plans single changes, each on its own. Returns those with a gain of at least 1 %, largest gain first; none if
/// nothing streams.
[[nodiscard]] std::vector<Improvement> improvements(const PlanRequest& request, const PlanReport& report);

}  // namespace slipstream::tools
