#include "runtime/ranks/tensor_passes.h"

#include <utility>

#include "kernels/base/check.h"
#include "runtime/ranks/rank.h"

namespace slipstream {

TensorPasses::TensorPasses(std::vector<SummingRank> ranks)
    : ranks_(std::move(ranks)),
      passes_(ranks_.size()),
      threads_(ranks_.size(), [this] { ranks_.front().collective->abort(); }) {
    for (const SummingRank& rank : ranks_) CHECK(rank.forward->n_layers() == n_layers() && rank.collective != nullptr);
}

bool TensorPasses::run(std::span<PassKv* const> kvs, const TargetPass& pass, std::span<PassHooks* const> hooks,
                       std::span<LogitRows> parts) {
    CHECK(pass.prompt.empty() && kvs.size() == ranks_.size() && parts.size() == ranks_.size());
    given_up_ = pass.control != nullptr && pass.control->cancelled();
    if (given_up_) return false;
    end_layer_ = n_layers();
    const Pass running{kvs, &pass, hooks, parts};
    try {
        threads_.run([&](std::size_t rank) { run_rank(rank, running); });
    } catch (...) {
        reset_after_failure();
        throw;
    }
    drop();
    return !given_up_;
}

void TensorPasses::run_rank(std::size_t rank, const Pass& pass) {
    std::optional<Forward::Steps>& steps = passes_[rank];
    Forward& forward = *ranks_[rank].forward;
    const TargetPass& asked = *pass.asked;
    on_rank(forward, 0, [&] {
        steps.emplace(forward, *pass.kvs[rank], asked.tokens, asked.nodes, asked.logit_tokens, asked.phase,
                      pass.hooks.empty() ? nullptr : pass.hooks[rank]);
        steps->embed();
    });
    for (std::int64_t layer = 0; layer < end_layer_; ++layer) {
        if (rank == 0 && asked.control != nullptr) check_cancelled(layer, *asked.control);
        on_rank(forward, layer, [&] { steps->run_layer(layer); });
    }
    if (given_up_) return;
    on_rank(forward, kLmHeadStage, [&] {
        pass.parts[rank] = steps->logits(nullptr);
        steps->complete();
    });
}

// Before the first rank runs a layer: without its part nobody comes to the end of that one, so all have heard by then
// whether it is the last.
void TensorPasses::check_cancelled(std::int64_t layer, const PassControl& control) {
    if (layer > 0 && control.on_progress)
        control.on_progress(static_cast<double>(layer) / static_cast<double>(n_layers()));
    if (!control.cancelled()) return;
    given_up_ = true;
    end_layer_ = layer + 1;
}

// Those that did not come to their end give up what they stream.
void TensorPasses::drop() {
    for (auto& running : passes_) running.reset();
}

// Behind a pass that threw, with all threads back: nothing of it is under way, and sums begin anew.
void TensorPasses::reset_after_failure() {
    drop();
    for (const SummingRank& rank : ranks_) {
        try {
            rank.forward->exec().stream.synchronize();
        } catch (...) {
            // What failed in it is told already, or is of the same failure.
        }
    }
    for (const SummingRank& rank : ranks_) rank.collective->restart();
}

}  // namespace slipstream
