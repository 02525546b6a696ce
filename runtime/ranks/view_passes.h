// Passes over the KV views of a model's ranks, each over that of its own layers or kv heads: nodes after the end of the
// text that the views represent, tokens in, logits out. The views are filled elsewhere (runtime/view/view_builder.h);
// nothing of these passes is ever committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/ranks/rank_logits.h"
#include "runtime/ranks/rank_passes.h"
#include "runtime/view/kv_view.h"

namespace slipstream {

/// Most tokens of one pass: rows of logits over a large vocabulary take more memory than a view does.
inline constexpr std::int64_t kMostViewRows = 16;

class ViewPasses {
public:
    /// `ranks` are those of the target, all of whose weights are resident (CHECKed), `views` [ranks] of their KV, with
    /// room for equally many nodes. What they point to outlives this. Takes memory of activations on every device, as
    /// device_bytes() says of its shard. Throws OutOfBudget.
    ViewPasses(std::vector<Rank> ranks, std::vector<KvView*> views);
    /// On one device.
    ViewPasses(Forward& forward, KvView& view) : ViewPasses({Rank{.forward = &forward}}, {&view}) {}
    /// What the constructor takes from a device's budget, kernels' workspace not counted. `config` is the shard's.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::int64_t max_nodes);

    [[nodiscard]] std::int64_t vocab() const { return logits_->vocab(); }
    /// Most nodes at once, over as many passes as they take.
    [[nodiscard]] std::int64_t max_nodes() const { return views_.front()->nodes().max_nodes(); }
    /// Positions of the text that the views of all ranks represent; 0: they are invalid.
    [[nodiscard]] std::int64_t n_text() const;
    /// How many of them a view keeps.
    [[nodiscard]] std::int64_t n_slots() const { return views_.front()->n_slots(); }
    /// As Target::add_node().
    NodeId add_node(NodeId parent);
    /// Drops all nodes; passes from now on see what the views have gained.
    void forget();
    /// Up to kMostViewRows tokens. Logits are valid until the next call; of several ranks they are whole rows, whatever
    /// `needs` asks for. Several ranks throw RankFailed; the views are then unchanged.
    [[nodiscard]] LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& needs);

private:
    std::vector<std::unique_ptr<Forward>> forwards_;  // [ranks]
    std::vector<Rank> ranks_;                         // with forwards_
    std::vector<KvView*> views_;                      // [ranks]
    std::vector<PassKv*> kvs_;                        // [ranks]: the same
    std::unique_ptr<RankPasses> passes_;
    std::optional<RankLogits> logits_;
};

}  // namespace slipstream
