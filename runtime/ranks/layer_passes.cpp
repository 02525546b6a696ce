#include "runtime/ranks/layer_passes.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

LayerPasses::LayerPasses(std::vector<LayerPassesRank> ranks) : ranks_(std::move(ranks)), passes_(ranks_.size()) {
    std::size_t n_layers = 0;
    for (const LayerPassesRank& rank : ranks_) n_layers += rank.layers.size();
    owners_.resize(n_layers);
    std::vector<bool> owned(n_layers, false);
    std::vector<Device*> devices;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        devices.push_back(&ranks_[rank].forward->exec().device);
        for (std::int64_t index = 0; index < std::ssize(ranks_[rank].layers); ++index) {
            const auto layer = static_cast<std::size_t>(ranks_[rank].layers[index]);
            owners_.at(layer) = {rank, index};
            owned[layer] = true;
        }
    }
    CHECK(std::ranges::find(owned, false) == owned.end(), "a layer that no rank has");
    const Forward& first = *ranks_.front().forward;
    rows_.emplace(devices, first.limits().max_tokens * row_bytes(DType::F32, first.model().config().d_model));
}

bool LayerPasses::run(std::span<PassKv* const> kvs, const TargetPass& pass, std::span<PassHooks* const> hooks,
                      std::span<LogitRows> parts) {
    CHECK(pass.prompt.empty() && kvs.size() == ranks_.size() && parts.size() == ranks_.size());
    // Those that do not come to their end give up what they stream.
    struct Dropped {
        ~Dropped() {
            for (auto& running : passes) running.reset();
        }
        std::vector<std::optional<Forward::Steps>>& passes;
    } const dropped{passes_};
    const PassControl no_control;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, 0, [&] {
            passes_[rank].emplace(*ranks_[rank].forward, *kvs[rank], pass.tokens, pass.nodes, pass.logit_tokens,
                                  pass.phase, hooks.empty() ? nullptr : hooks[rank]);
        });
    if (!run_layers(pass.control != nullptr ? *pass.control : no_control)) return false;
    take_logits(pass, passes_, parts);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, kLmHeadStage, [&] { passes_[rank]->complete(); });
    return true;
}

bool LayerPasses::run_layers(const PassControl& control) {
    std::size_t at = owners_[0].rank;
    on_rank(*ranks_[at].forward, 0, [&] { passes_[at]->embed(); });
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        if (control.cancelled()) return false;
        if (layer > 0 && control.on_progress)
            control.on_progress(static_cast<double>(layer) / static_cast<double>(n_layers()));
        const LayerOwner& owner = owners_[layer];
        on_rank(*ranks_[owner.rank].forward, layer, [&] {
            if (owner.rank != at) transfer(at, passes_[at]->hidden(), owner.rank, passes_[owner.rank]->hidden());
            passes_[owner.rank]->run_layer(owner.layer);
        });
        at = owner.rank;
    }
    return true;
}

void LayerPasses::transfer(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out) {
    with_context("rows", [&] { rows_->carry(ranks_[from].forward->exec(), rows, ranks_[to].forward->exec(), out); });
}

}  // namespace slipstream
