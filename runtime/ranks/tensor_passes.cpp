#include "runtime/ranks/tensor_passes.h"

#include <functional>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream {

TensorPasses::TensorPasses(std::vector<Rank> ranks)
    : ranks_(std::move(ranks)),
      steps_(ranks_.size()),
      threads_(ranks_.size(), [this] { ranks_.front().collective->abort(); }) {
    static_cast<void>(layer_owners(ranks_));
    for (const Rank& rank : ranks_) CHECK(rank.forward->n_layers() == n_layers() && rank.collective != nullptr);
}

bool TensorPasses::run(std::span<PassKv* const> kvs, const RankPass& pass) {
    CHECK(pass.pass->prompt.empty() && kvs.size() == ranks_.size() && pass.logits.size() == ranks_.size());
    cancelled_ = pass.control().cancelled();
    if (cancelled_) return false;
    end_layer_ = n_layers();
    try {
        // Passed by reference, so that std::function allocates nothing.
        const auto run_on = [&kvs, &pass, this](std::size_t rank) { run_rank(rank, kvs, pass); };
        threads_.run(std::cref(run_on));
    } catch (...) {
        reset_after_failure();
        throw;
    }
    drop();
    return !cancelled_;
}

bool TensorPasses::run_prompt(std::span<KvCache* const> /*caches*/, std::int64_t /*begin*/, const RankPass& /*pass*/) {
    CHECK(false, "a prompt layer by layer, with split matrices");
    return false;
}

void TensorPasses::run_rank(std::size_t rank, std::span<PassKv* const> kvs, const RankPass& pass) {
    std::optional<Forward::Steps>& steps = steps_[rank];
    Forward& forward = *ranks_[rank].forward;
    const TargetPass& asked = *pass.pass;
    on_rank(forward, 0, [&] {
        steps.emplace(forward, *kvs[rank], asked.tokens, asked.nodes, asked.logit_tokens, asked.phase,
                      pass.hooks_of(rank));
        steps->embed();
    });
    for (std::int64_t layer = 0; layer < end_layer_; ++layer) {
        if (rank == 0 && !pass.control().report_progress(layer, n_layers())) {
            cancelled_ = true;
            end_layer_ = layer + 1;
        }
        on_rank(forward, layer, [&] { steps->run_layer(layer); });
    }
    if (cancelled_) return;
    on_rank(forward, kLmHeadStage, [&] {
        pass.logits[rank] = steps->logits(nullptr);
        steps->complete();
    });
}

// Destroys the steps of all ranks. If they are incomplete, this drops the rest of their transfer schedule.
void TensorPasses::drop() {
    for (auto& each : steps_) each.reset();
}

// Call after a pass that threw, when all threads have returned: waits until no work of the pass is running, and
// restarts the sums.
void TensorPasses::reset_after_failure() {
    drop();
    for (const Rank& rank : ranks_) {
        try {
            rank.forward->exec().stream.synchronize();
        } catch (...) {
            // The first failure is reported; this one is the same or a consequence of it.
        }
    }
    for (const Rank& rank : ranks_) rank.collective->restart();
}

}  // namespace slipstream
