#include "runtime/ranks/layer_split.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/check.h"
#include "runtime/ranks/split_parts.h"

namespace slipstream {

std::vector<std::int64_t> layers_by_share(std::int64_t n_layers, std::span<const double> shares) {
    return whole_parts(n_layers, shares, "layer");
}

std::vector<ModelShard> deal_layers(const ModelConfig& config, std::span<const std::int64_t> n_layers) {
    CHECK(!n_layers.empty() && std::ranges::all_of(n_layers, [](std::int64_t n) { return n >= 1; }) &&
          std::accumulate(n_layers.begin(), n_layers.end(), std::int64_t{0}) == config.n_layers());
    std::vector<ModelShard> shards(n_layers.size(), whole_shard(config));
    // The next layer goes to the rank that has the smallest fraction of its layers.
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const auto through = [&](std::size_t rank) {
            return static_cast<double>(shards[rank].layers.size() + 1) / static_cast<double>(n_layers[rank]);
        };
        std::size_t next = 0;
        for (std::size_t rank = 1; rank < shards.size(); ++rank)
            if (through(rank) < through(next)) next = rank;
        shards[next].layers.push_back(layer);
    }
    deal_vocabulary(config.vocab, n_layers, shards);
    return shards;
}

}  // namespace slipstream
