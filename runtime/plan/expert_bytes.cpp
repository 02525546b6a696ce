#include "runtime/plan/expert_bytes.h"

#include <algorithm>
#include <cmath>

namespace slipstream {

namespace {

bool mixes(const LayerConfig& layer) {
    return !layer.feed_forward.experts.empty();
}

}  // namespace

ExpertBytes expert_bytes(const ModelConfig& config, const ModelWeights& weights, double n_tokens,
                         std::span<const CountedExperts> counted) {
    std::size_t all = 0;
    double read = 0.0;
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t layer, const ConstTensorView& view) {
        if (info.role == TensorRole::TokenEmbedding) return;
        const std::size_t bytes = static_cast<std::size_t>(view.rows()) * row_bytes(view.dtype, view.cols());
        double share = 1.0;
        if (info.is_of_experts()) {
            const ExpertsConfig& experts = config.experts(layer);
            const std::span<const DistinctPoint> distinct =
                counted.empty() ? std::span<const DistinctPoint>() : counted[layer].distinct;
            share =
                expected_distinct({.n_experts = experts.n_experts, .n_chosen = experts.n_chosen}, n_tokens, distinct) /
                static_cast<double>(experts.n_experts);
            all += bytes;
        }
        read += share * static_cast<double>(bytes);
    });
    return {.experts = all, .read = static_cast<std::size_t>(std::llround(read))};
}

bool distinct_is_counted(const ModelConfig& config, std::span<const CountedExperts> counted) {
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer)
        if (mixes(config.layers[layer]) && (layer >= counted.size() || counted[layer].distinct.empty())) return false;
    return config.has_experts();
}

const ExpertsConfig* first_experts(const ModelConfig& config) {
    const auto found = std::ranges::find_if(config.layers, mixes);
    return found == config.layers.end() ? nullptr : &found->feed_forward.experts;
}

std::int64_t n_expert_layers(const ModelConfig& config) {
    return std::ranges::count_if(config.layers, mixes);
}

}  // namespace slipstream
