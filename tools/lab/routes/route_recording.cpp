#include "tools/lab/routes/route_recording.h"

#include <algorithm>
#include <memory>

#include "kernels/base/check.h"
#include "runtime/pass/expert_choices.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

/// Notes the choices of all ranks as long as it lives.
class NotedChoices {
public:
    NotedChoices(ModelRunner& runner, std::span<const RoutedRank> ranks) : runner_(runner) {
        CHECK(ranks.size() == runner.n_ranks(), "{} ranks of {}", ranks.size(), runner.n_ranks());
        const std::int64_t max_nodes = runner.target().shape().max_nodes;
        for (const RoutedRank& rank : ranks)
            choices_.push_back(std::make_unique<ExpertChoices>(*rank.config, max_nodes));
        std::vector<ExpertChoices*> pointers;
        for (const auto& choices : choices_) pointers.push_back(choices.get());
        runner.target().note_choices_in(std::move(pointers));
    }
    ~NotedChoices() { runner_.target().note_choices_in({}); }
    NotedChoices(const NotedChoices&) = delete;
    NotedChoices& operator=(const NotedChoices&) = delete;

    [[nodiscard]] const ExpertChoices& of(std::size_t rank) const { return *choices_[rank]; }

private:
    ModelRunner& runner_;
    std::vector<std::unique_ptr<ExpertChoices>> choices_;  // [ranks]
};

/// A layer with experts on its rank.
struct Place {
    std::size_t rank = 0;
    std::int64_t layer = 0;  // of the rank
    RoutedLayer routed;
};

std::vector<Place> routed_layers(std::span<const RoutedRank> ranks) {
    std::vector<Place> places;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (std::int64_t layer = 0; layer < ranks[rank].config->n_layers(); ++layer) {
            const ExpertsConfig& experts = ranks[rank].config->experts(layer);
            if (experts.empty()) continue;
            places.push_back({rank,
                              layer,
                              {.layer = ranks[rank].layers.empty() ? layer : ranks[rank].layers[layer],
                               .n_experts = experts.n_experts,
                               .n_chosen = experts.n_chosen}});
        }
    std::ranges::sort(places, {}, [](const Place& place) { return place.routed.layer; });
    return places;
}

}  // namespace

RouteTrace record_routes(ModelRunner& runner, std::span<const RoutedRank> ranks, std::span<const TokenId> tokens,
                         const std::function<void(std::int64_t)>& on_progress) {
    std::vector<Place> places = routed_layers(ranks);
    CHECK(!places.empty(), "routes of a model without experts");
    const NotedChoices choices(runner, ranks);
    Target& target = runner.target();
    const PassControl control{.cancel = &cancel_flag()};
    for (std::int64_t begin = 0; begin < std::ssize(tokens); begin += kRoutePassTokens) {
        const auto part = tokens.subspan(begin, std::min(kRoutePassTokens, std::ssize(tokens) - begin));
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < part.size(); ++i)
            nodes.push_back(target.add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
        static_cast<void>(target.run({.tokens = part, .nodes = nodes, .control = &control}));
        throw_if_interrupted();
        for (Place& place : places)
            for (const NodeId node : nodes) {
                const std::span<const std::uint16_t> chosen = choices.of(place.rank).of(place.layer, node);
                place.routed.ids.insert(place.routed.ids.end(), chosen.begin(), chosen.end());
            }
        target.commit(nodes);
        on_progress(begin + std::ssize(part));
    }
    RouteTrace trace{.model = {}, .n_tokens = std::ssize(tokens), .layers = {}};
    for (Place& place : places) trace.layers.push_back(std::move(place.routed));
    return trace;
}

}  // namespace slipstream::tools
