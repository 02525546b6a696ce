// The ways to run a model that does not fit on its devices, compared: what streams crosses the links, or the CPU takes
// a part of the layers, or all of them. `plan` lists them; loading says if another way is much faster than the one that
// was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/pass_cost.h"
#include "tools/engine/planner.h"

namespace slipstream::tools {

enum class WayKind : std::uint8_t {
    Streaming,  // weights and KV that do not fit on the devices are copied to them in each pass
    Shared,     // the CPU computes some layers in place, by the planner's best split
    CpuOnly,    // the CPU computes all layers in place, and nothing crosses a link
};
[[nodiscard]] std::string_view way_name(WayKind kind);

struct Way {
    WayKind kind = WayKind::Streaming;
    std::string options{};                      // options that choose this way; empty: those that were given
    double one_seconds = 0.0;                   // seconds of a pass of 1 token
    double expected_seconds = 0.0;              // seconds of a pass of as many tokens as the plan is for
    std::optional<std::int64_t> from_tokens{};  // fewest tokens of a pass, 1 or a power of 2, with which it is fastest
    std::vector<std::int64_t> layers{};         // [devices], the CPU last: layers of each; only for Shared
};

/// A plan in which something streams, and what the other ways need.
struct WaysRequest {
    PlacementRequest placement;  // request for which `plan` was made
    const SplitPlan* plan = nullptr;
    std::vector<std::string> device_names{};  // [devices], as --devices takes them
    bool names_budgets = false;               // whether options for those devices must give their budgets
    std::string offload_options{};            // given ones that act only if something streams, or on several devices:
                                              // "--device-memory, --ring"; empty: none
    std::int64_t split_pass_tokens = 1;       // tokens of the pass for which layers are shared out
    PassRates host_rates{};                   // rates of all of the host's cores, computing in place
    HostLimits host{};                        // host memory that a way may take
};
/// Returns the ways that the host's memory allows, the one that was asked for (Streaming) first. Throws what planning
/// throws.
[[nodiscard]] std::vector<Way> compare_ways(const WaysRequest& request);

/// Returns a line that names the fastest way with its options, if it is at least 1.3 times as fast as the first of
/// `ways` for a pass of `pass_tokens` tokens, for which the plan is; else no value.
[[nodiscard]] std::optional<std::string> faster_way_note(std::span<const Way> ways, std::int64_t pass_tokens);

}  // namespace slipstream::tools
