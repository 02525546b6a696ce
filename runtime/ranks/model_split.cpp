#include "runtime/ranks/model_split.h"

#include "runtime/ranks/layer_split.h"
#include "runtime/ranks/tensor_split.h"

namespace slipstream {

std::string_view part_name(SplitKind kind) {
    return kind == SplitKind::Layers ? "layer" : "kv head";
}

std::int64_t n_parts(SplitKind kind, const ModelConfig& config) {
    return kind == SplitKind::Layers ? config.n_layers() : config.n_kv_groups();
}

std::int64_t parts_together(SplitKind kind, const ModelConfig& config, const ModelWeights& weights) {
    return kind == SplitKind::Layers ? 1 : heads_together(config, weights);
}

std::vector<std::int64_t> parts_by_share(SplitKind kind, const ModelConfig& config, const ModelWeights& weights,
                                         std::span<const double> shares) {
    return kind == SplitKind::Layers ? layers_by_share(config.n_layers(), shares)
                                     : heads_by_share(config, weights, shares);
}

std::vector<std::int64_t> even_parts(SplitKind kind, const ModelConfig& config, const ModelWeights& weights,
                                     std::size_t n_ranks) {
    return parts_by_share(kind, config, weights, std::vector<double>(n_ranks, 1.0));
}

std::vector<ModelShard> deal_parts(SplitKind kind, const ModelConfig& config, const ModelWeights& weights,
                                   std::span<const std::int64_t> parts) {
    return kind == SplitKind::Layers ? deal_layers(config, parts) : deal_heads(config, weights, parts);
}

std::vector<std::int64_t> parts_of(SplitKind kind, std::span<const ModelShard> shards) {
    std::vector<std::int64_t> parts;
    for (const ModelShard& shard : shards)
        parts.push_back(kind == SplitKind::Layers ? std::ssize(shard.layers) : shard.n_kv_groups.value());
    return parts;
}

}  // namespace slipstream
