#include "runtime/ranks/rank_passes.h"

#include "runtime/ranks/device_passes.h"
#include "runtime/ranks/layer_passes.h"
#include "runtime/ranks/tensor_passes.h"

namespace slipstream {

const PassControl& RankPass::control() const {
    static const PassControl none;
    return pass->control != nullptr ? *pass->control : none;
}

std::unique_ptr<RankPasses> make_rank_passes(const std::vector<Rank>& ranks, PinnedArena* arena) {
    if (ranks.size() == 1) return std::make_unique<DevicePasses>(*ranks.front().forward);
    if (ranks.front().collective != nullptr) return std::make_unique<TensorPasses>(ranks);
    return std::make_unique<LayerPasses>(ranks, arena);
}

}  // namespace slipstream
