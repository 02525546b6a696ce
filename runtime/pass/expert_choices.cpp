#include "runtime/pass/expert_choices.h"

#include <algorithm>
#include <limits>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

// First entry of a row of which nothing is noted.
constexpr std::uint16_t kNothing = std::numeric_limits<std::uint16_t>::max();

}  // namespace

ExpertChoices::ExpertChoices(const ModelConfig& config, std::int64_t max_nodes) {
    for (const LayerConfig& layer : config.layers) {
        const ExpertsConfig& experts = layer.feed_forward.experts;
        CHECK(experts.n_experts <= kNothing, "{} experts", experts.n_experts);
        const std::int64_t n_chosen = experts.empty() ? 0 : experts.n_chosen;
        layers_.push_back({n_chosen, std::vector(static_cast<std::size_t>(max_nodes * n_chosen), kNothing)});
    }
}

void ExpertChoices::note(std::int64_t layer, std::span<const NodeId> nodes, const std::int32_t* chosen) {
    Layer& of_layer = layers_[layer];
    for (const NodeId node : nodes) {
        const auto to = static_cast<std::size_t>(node.row) * static_cast<std::size_t>(of_layer.n_chosen);
        CHECK(to + static_cast<std::size_t>(of_layer.n_chosen) <= of_layer.ids.size(), "node {}", node.row);
        std::copy_n(chosen, of_layer.n_chosen, of_layer.ids.begin() + static_cast<std::ptrdiff_t>(to));
        chosen += of_layer.n_chosen;
    }
}

void ExpertChoices::forget(NodeId node) {
    for (Layer& layer : layers_)
        if (layer.n_chosen > 0)
            layer.ids[static_cast<std::size_t>(node.row) * static_cast<std::size_t>(layer.n_chosen)] = kNothing;
}

std::span<const std::uint16_t> ExpertChoices::of(std::int64_t layer, NodeId node) const {
    const Layer& of_layer = layers_[layer];
    const auto n = static_cast<std::size_t>(of_layer.n_chosen);
    const std::span<const std::uint16_t> ids =
        std::span(of_layer.ids).subspan(static_cast<std::size_t>(node.row) * n, n);
    return n == 0 || ids[0] == kNothing ? std::span<const std::uint16_t>{} : ids;
}

}  // namespace slipstream
