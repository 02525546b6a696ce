// What a trace of routes says: how many experts neighbouring tokens need together, and what slots would be worth.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/base/json_object.h"
#include "tools/lab/routes/route_trace.h"
#include "tools/lab/routes/slot_policies.h"

namespace slipstream::tools {

/// Numbers of neighbouring tokens.
inline constexpr std::array<std::int64_t, 6> kNeighbours{2, 4, 8, 16, 32, 64};
/// Slots of a layer, as shares of its experts.
inline constexpr std::array<double, 6> kSlotShares{0.0625, 0.125, 0.25, 0.33, 0.5, 0.75};

/// Of n neighbouring tokens, the mean over all that the text has.
struct NeighbourFigures {
    std::int64_t tokens = 0;
    double distinct = 0.0;  // different experts that they choose, over those that one chooses
    double even = 0.0;      // the same if each token chose evenly among all experts: N (1 - (1 - k/N)^n) / k
    double fresh = 0.0;     // share of the last one's experts that none of those before it chose
};

struct LayerRoutes {
    std::int64_t layer = 0, n_experts = 0, n_chosen = 0;
    std::vector<NeighbourFigures> neighbours;  // of kNeighbours those that the text is long enough for
    /// [kSlotShares][kSlotPolicies]
    std::array<std::array<SlotFigures, kSlotPolicies.size()>, kSlotShares.size()> slots{};
};

struct RouteFigures {
    std::string model;
    std::int64_t n_tokens = 0;
    std::int64_t n_left_out = 0;
    std::vector<LayerRoutes> layers;  // as in the trace
    LayerRoutes all;                  // means of the layers; sums of slots; n_experts and n_chosen of the largest
};

[[nodiscard]] NeighbourFigures neighbour_figures(const RoutedLayer& layer, std::int64_t n_tokens, std::int64_t n);
/// Throws Interrupted after a signal.
[[nodiscard]] RouteFigures route_figures(const RouteTrace& trace);

/// Returns two tables, for a screen of `columns` columns; 0: no limit.
[[nodiscard]] std::string routes_table(const RouteFigures& figures, int columns = 0);
[[nodiscard]] JsonObject routes_json(const RouteFigures& figures);

}  // namespace slipstream::tools
