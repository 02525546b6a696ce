#include "runtime/ranks/rank.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

std::vector<std::vector<LayerOwner>> layer_owners(std::span<const Rank> ranks) {
    std::int64_t n_layers = 0;
    for (const Rank& rank : ranks)
        n_layers = std::max(n_layers, rank.layers.empty() ? rank.forward->n_layers() : rank.layers.back() + 1);
    std::vector<std::vector<LayerOwner>> owners(static_cast<std::size_t>(n_layers));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const std::vector<std::int64_t>& layers = ranks[rank].layers;
        CHECK(layers.empty() || std::ssize(layers) == ranks[rank].forward->n_layers(), "{} layers of a shard of {}",
              layers.size(), ranks[rank].forward->n_layers());
        for (std::int64_t own = 0; own < ranks[rank].forward->n_layers(); ++own)
            owners[layers.empty() ? own : layers[own]].push_back({rank, own});
    }
    const std::size_t n_owners = ranks.front().collective != nullptr ? ranks.size() : 1;
    for (const std::vector<LayerOwner>& each : owners)
        CHECK(each.size() == n_owners, "a layer with {} owners of {}", each.size(), n_owners);
    return owners;
}

}  // namespace slipstream
