#include "runtime/ranks/layer_passes.h"

#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/error_context.h"
#include "runtime/ranks/pipelined_prefill.h"

namespace slipstream {

LayerPasses::LayerPasses(std::vector<Rank> ranks, PinnedArena* arena)
    : ranks_(std::move(ranks)), arena_(arena), steps_(ranks_.size()) {
    for (const std::vector<LayerOwner>& each : layer_owners(ranks_)) owners_.push_back(each.front());
    std::vector<Device*> devices;
    for (const Rank& rank : ranks_) devices.push_back(&rank.forward->exec().device);
    const Forward& first = *ranks_.front().forward;
    rows_.emplace(devices, first.limits().max_tokens * row_bytes(DType::F32, first.model().config().d_model));
}

bool LayerPasses::run(std::span<PassKv* const> kvs, const RankPass& pass) {
    const TargetPass& asked = *pass.pass;
    CHECK(asked.prompt.empty() && kvs.size() == ranks_.size() && pass.logits.size() == ranks_.size());
    // Destroying incomplete steps drops the rest of their transfer schedule.
    struct Dropped {
        ~Dropped() {
            for (auto& each : steps) each.reset();
        }
        std::vector<std::optional<Forward::Steps>>& steps;
    } const dropped{steps_};
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, 0, [&] {
            steps_[rank].emplace(*ranks_[rank].forward, *kvs[rank], asked.tokens, asked.nodes, asked.logit_tokens,
                                 asked.phase, pass.hooks_of(rank));
        });
    if (!run_layers(pass.control())) return false;
    take_logits(pass, steps_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, kLmHeadStage, [&] { steps_[rank]->complete(); });
    return true;
}

bool LayerPasses::run_layers(const PassControl& control) {
    std::size_t at = owners_[0].rank;
    on_rank(*ranks_[at].forward, 0, [&] { steps_[at]->embed(); });
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        if (!control.report_progress(layer, n_layers())) return false;
        const LayerOwner& owner = owners_[layer];
        on_rank(*ranks_[owner.rank].forward, layer, [&] {
            if (owner.rank != at) transfer(at, steps_[at]->hidden(), owner.rank, steps_[owner.rank]->hidden());
            steps_[owner.rank]->run_layer(owner.layer);
        });
        at = owner.rank;
    }
    return true;
}

void LayerPasses::transfer(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out) {
    with_context("rows", [&] { rows_->carry(ranks_[from].forward->exec(), rows, ranks_[to].forward->exec(), out); });
}

template <typename Steps>
void LayerPasses::take_logits(const RankPass& pass, std::vector<std::optional<Steps>>& steps) {
    const std::size_t last = owners_.back().rank;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, kLmHeadStage, [&] {
            if (rank != last && !pass.pass->logit_tokens.empty())
                transfer(last, steps[last]->hidden(), rank, steps[rank]->hidden());
            pass.logits[rank] = steps[rank]->logits(nullptr);
        });
}

bool LayerPasses::takes_prompt(std::span<KvCache* const> caches, std::int64_t begin, std::int64_t end) const {
    return arena_ != nullptr && PipelinedPrefill::fits(ranks_, caches, *arena_, begin, end);
}

bool LayerPasses::run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) {
    PipelinedPrefill prefill(ranks_, owners_, caches, *arena_, begin, pass);
    if (!prefill.run(pass.control())) return false;
    take_logits(pass, prefill.steps());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(*ranks_[rank].forward, kKvStage, [&] { prefill.steps()[rank]->end(); });
    for (auto& steps : prefill.steps()) steps->complete();
    return true;
}

}  // namespace slipstream
