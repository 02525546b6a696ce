#include "tools/lab/routes/route_figures.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/base/amounts.h"
#include "tools/terminal/signals.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

LayerRoutes layer_routes(const RoutedLayer& layer, std::int64_t n_tokens) {
    LayerRoutes routes{.layer = layer.layer, .n_experts = layer.n_experts, .n_chosen = layer.n_chosen};
    for (const std::int64_t n : kNeighbours)
        if (n <= n_tokens) routes.neighbours.push_back(neighbour_figures(layer, n_tokens, n));
    for (std::size_t share = 0; share < kSlotShares.size(); ++share)
        for (std::size_t policy = 0; policy < kSlotPolicies.size(); ++policy)
            routes.slots[share][policy] = replay_slots(kSlotPolicies[policy].second, layer, n_tokens,
                                                       slots_of(kSlotShares[share], layer.n_experts));
    return routes;
}

void add(LayerRoutes& sum, const LayerRoutes& layer) {
    sum.n_experts = std::max(sum.n_experts, layer.n_experts);
    sum.n_chosen = std::max(sum.n_chosen, layer.n_chosen);
    sum.neighbours.resize(layer.neighbours.size());
    for (std::size_t i = 0; i < layer.neighbours.size(); ++i) {
        sum.neighbours[i].tokens = layer.neighbours[i].tokens;
        sum.neighbours[i].distinct += layer.neighbours[i].distinct;
        sum.neighbours[i].even += layer.neighbours[i].even;
        sum.neighbours[i].fresh += layer.neighbours[i].fresh;
    }
    for (std::size_t share = 0; share < kSlotShares.size(); ++share)
        for (std::size_t policy = 0; policy < kSlotPolicies.size(); ++policy) {
            const SlotFigures& figures = layer.slots[share][policy];
            sum.slots[share][policy].n_tokens += figures.n_tokens;
            sum.slots[share][policy].chosen += figures.chosen;
            sum.slots[share][policy].hits += figures.hits;
            sum.slots[share][policy].copied += figures.copied;
        }
}

/// Returns the layer with the lowest, or the highest, value, as "1.62 (layer 7)".
template <typename Value, typename Text>
std::string extreme(const std::vector<LayerRoutes>& layers, bool highest, const Value& value, const Text& text) {
    const auto by_value = [&](const LayerRoutes& a, const LayerRoutes& b) { return value(a) < value(b); };
    const LayerRoutes& layer =
        *(highest ? std::ranges::max_element(layers, by_value) : std::ranges::min_element(layers, by_value));
    return fmt::format("{} ({})", text(value(layer)), layer.layer);
}

std::string two_decimals(double value) {
    return fmt::format("{:.2f}", value);
}

JsonObject slots_json(const LayerRoutes& routes, std::size_t share) {
    JsonObject json;
    json.real("share", kSlotShares[share]).integer("slots", slots_of(kSlotShares[share], routes.n_experts));
    for (std::size_t policy = 0; policy < kSlotPolicies.size(); ++policy) {
        const SlotFigures& figures = routes.slots[share][policy];
        JsonObject of_policy;
        of_policy.real("hits", figures.hit_share()).real("copied", figures.copied_a_token());
        json.object(kSlotPolicies[policy].first, of_policy);
    }
    return json;
}

JsonObject layer_json(const LayerRoutes& routes) {
    JsonObject json;
    json.integer("experts", routes.n_experts).integer("chosen", routes.n_chosen);
    std::vector<JsonObject> neighbours;
    for (const NeighbourFigures& figures : routes.neighbours) {
        JsonObject& one = neighbours.emplace_back();
        one.integer("tokens", figures.tokens)
            .real("distinct", figures.distinct)
            .real("even", figures.even)
            .real("new", figures.fresh);
    }
    json.objects("neighbours", neighbours);
    std::vector<JsonObject> slots;
    for (std::size_t share = 0; share < kSlotShares.size(); ++share) slots.push_back(slots_json(routes, share));
    json.objects("slots", slots);
    return json;
}

std::string neighbours_table(const RouteFigures& figures, int columns) {
    TextTable table({"tokens", "experts", "lowest layer", "highest layer", "if even", "new, %"});
    for (std::size_t i = 0; i < figures.all.neighbours.size(); ++i) {
        const NeighbourFigures& mean = figures.all.neighbours[i];
        const auto distinct = [&](const LayerRoutes& layer) { return layer.neighbours[i].distinct; };
        table.add({fmt::format("{}", mean.tokens), two_decimals(mean.distinct),
                   extreme(figures.layers, false, distinct, two_decimals),
                   extreme(figures.layers, true, distinct, two_decimals), two_decimals(mean.even),
                   percent_text(mean.fresh)});
    }
    return table.text(columns);
}

std::string slots_table(const RouteFigures& figures, int columns) {
    TextTable table({"slots, %", "lru", "copied", "counts", "copied", "lowest layer", "fixed", "best", "copied"});
    for (std::size_t share = 0; share < kSlotShares.size(); ++share) {
        std::vector<std::string> cells{percent_text(kSlotShares[share])};
        for (std::size_t policy = 0; policy < kSlotPolicies.size(); ++policy) {
            const SlotFigures& sum = figures.all.slots[share][policy];
            const SlotPolicy kind = kSlotPolicies[policy].second;
            cells.push_back(percent_text(sum.hit_share()));
            if (kind != SlotPolicy::Fixed) cells.push_back(two_decimals(sum.copied_a_token()));
            if (kind == SlotPolicy::Counts)
                cells.push_back(extreme(
                    figures.layers, false,
                    [&](const LayerRoutes& layer) { return layer.slots[share][policy].hit_share(); }, percent_text));
        }
        table.add(std::move(cells));
    }
    return table.text(columns);
}

}  // namespace

NeighbourFigures neighbour_figures(const RoutedLayer& layer, std::int64_t n_tokens, std::int64_t n) {
    // An expert that a token chose counts in each window of n tokens that has this token but not the last one before it
    // that chose the expert.
    std::vector<std::int64_t> last(static_cast<std::size_t>(layer.n_experts), -1);
    std::int64_t distinct = 0;
    std::int64_t fresh = 0;
    for (std::int64_t token = 0; token < n_tokens; ++token)
        for (const std::uint16_t expert : layer.chosen(token)) {
            const std::int64_t first = std::max(last[expert] + 1, token - n + 1);  // window: its first token
            const std::int64_t end = std::min(token, n_tokens - n) + 1;
            distinct += std::max<std::int64_t>(0, end - first);
            if (token >= n - 1 && last[expert] < token - n + 1) ++fresh;
            last[expert] = token;
        }
    const auto windows = static_cast<double>(n_tokens - n + 1);
    const auto k = static_cast<double>(layer.n_chosen);
    const auto all = static_cast<double>(layer.n_experts);
    return {.tokens = n,
            .distinct = static_cast<double>(distinct) / windows / k,
            .even = all * (1.0 - std::pow(1.0 - k / all, static_cast<double>(n))) / k,
            .fresh = static_cast<double>(fresh) / windows / k};
}

RouteFigures route_figures(const RouteTrace& trace) {
    RouteFigures figures{.model = trace.model, .n_tokens = trace.n_tokens, .n_left_out = trace.n_left_out};
    for (const RoutedLayer& layer : trace.layers) {
        throw_if_interrupted();
        figures.layers.push_back(layer_routes(layer, trace.n_tokens));
        add(figures.all, figures.layers.back());
    }
    const auto n = static_cast<double>(figures.layers.size());
    for (NeighbourFigures& mean : figures.all.neighbours) {
        mean.distinct /= n;
        mean.even /= n;
        mean.fresh /= n;
    }
    return figures;
}

std::string routes_table(const RouteFigures& figures, int columns) {
    std::string text =
        fmt::format("{}: {} with experts, {} of {}; {}", figures.model, counted(std::ssize(figures.layers), "layer"),
                    figures.all.n_chosen, figures.all.n_experts, counted(figures.n_tokens, "token"));
    if (figures.n_left_out > 0) text += fmt::format("; {} that some layers lack are left out", figures.n_left_out);
    text += fmt::format("\n\nexperts that neighbouring tokens need, over those of one token\n{}",
                        neighbours_table(figures, columns));
    return text + fmt::format("\nhits in the second half, %, and experts copied to slots, a layer and token\n{}",
                              slots_table(figures, columns));
}

JsonObject routes_json(const RouteFigures& figures) {
    JsonObject json;
    json.text("model", figures.model).integer("tokens", figures.n_tokens).integer("left_out", figures.n_left_out);
    json.object("all", layer_json(figures.all));
    std::vector<JsonObject> layers;
    for (const LayerRoutes& layer : figures.layers) {
        JsonObject& one = layers.emplace_back();
        one.integer("layer", layer.layer);
        one.object("routes", layer_json(layer));
    }
    json.objects("layers", layers);
    return json;
}

}  // namespace slipstream::tools
