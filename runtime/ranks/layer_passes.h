// LayerPasses: passes of a model whose layers are split among several devices. Each device computes its own layers, one
// device after the other, and sends the hidden rows to the next. All devices receive the rows of the last layer, and
// each computes its columns of the logits. While one device computes, the rings of the others fill; so one host thread
// is enough for a pass. During a prompt, each device computes a different prefill chunk (pipelined_prefill.h). The
// logits have the same bits as on one device of the same kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/ranks/hidden_state_transfer.h"
#include "runtime/ranks/rank_passes.h"

namespace slipstream {

class LayerPasses final : public RankPasses {
public:
    /// See make_rank_passes(). Each layer must be on exactly one of `ranks` (CHECKed), and their limits must be equal.
    LayerPasses(std::vector<Rank> ranks, PinnedArena* arena);

    /// Runs the layers one device after the other. If the devices do not share host memory, waits for each device
    /// before the next one begins.
    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const RankPass& pass) override;
    [[nodiscard]] bool takes_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                    std::int64_t end) const override;
    [[nodiscard]] bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) override;

private:
    [[nodiscard]] std::int64_t n_layers() const { return std::ssize(owners_); }
    [[nodiscard]] bool run_layers(const PassControl& control);
    void transfer(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out);
    /// Computes the logits of all ranks after `steps` [ranks] have run all layers, and stores them in pass.logits.
    template <typename Steps>
    void take_logits(const RankPass& pass, std::vector<std::optional<Steps>>& steps);

    std::vector<Rank> ranks_;
    PinnedArena* arena_;
    std::vector<LayerOwner> owners_;  // [n_layers]
    std::optional<HiddenStateTransfer> rows_;
    std::vector<std::optional<Forward::Steps>> steps_;  // [ranks], steps of the running pass
};

}  // namespace slipstream
