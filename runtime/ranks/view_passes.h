// ViewPasses: passes over the KV views of a model's ranks, each over the view of its own layers or kv heads. Input:
// tokens at nodes after the end of the text that the views represent; output: logits. The views are filled elsewhere
// (runtime/view/view_builder.h). Nothing of these passes is ever committed.
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

/// Most tokens of one pass over KV views: more rows of logits over a large vocabulary would take more memory than a
/// view.
inline constexpr std::int64_t kMostViewRows = 16;

class ViewPasses {
public:
    /// `ranks` are those of the target, with all weights resident; `views` [ranks] are of their KV, with room for
    /// equally many nodes (both CHECKed). What they point to must outlive this object. Allocates activations on every
    /// device, device_bytes() of its shard. Throws OutOfBudget.
    ViewPasses(std::vector<Rank> ranks, std::vector<KvView*> views);
    /// Makes passes on one device. `forward` and `view` must outlive this object.
    ViewPasses(Forward& forward, KvView& view) : ViewPasses({Rank{.forward = &forward}}, {&view}) {}
    /// Returns what the constructor takes from a device's memory budget, without the workspace of kernels. `config` is
    /// that of the device's shard; `has_pages`: whether its view has pages.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::int64_t max_nodes, bool has_pages);

    [[nodiscard]] std::int64_t vocab() const { return logits_->vocab(); }
    /// Returns how many nodes the views can hold at the same time; they may be added over several passes.
    [[nodiscard]] std::int64_t max_nodes() const { return views_.front()->nodes().max_nodes(); }
    /// Returns the number of text positions that the views of all ranks represent; 0: they are invalid.
    [[nodiscard]] std::int64_t n_text() const;
    /// Returns how many committed slots would have as many bytes as what a pass reads of a view.
    [[nodiscard]] std::int64_t n_read() const { return views_.front()->n_read(); }
    /// Adds a node for the next pass after `parent`, a node or the committed tip, to the views of all ranks. Returns
    /// the new node, which exists until forget().
    NodeId add_node(NodeId parent);
    /// Drops all nodes. Later passes see what was added to the views before this call.
    void forget();
    /// Runs a pass over up to kMostViewRows tokens and returns their logits, valid until the next call. Several ranks
    /// return whole rows, whatever `needs` requests, and throw errors as on_rank() does; the views are then unchanged.
    [[nodiscard]] LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& needs);

private:
    std::vector<std::unique_ptr<Forward>> forwards_;  // [ranks]
    std::vector<Rank> ranks_;                         // [ranks], with forwards_
    std::vector<KvView*> views_;                      // [ranks]
    std::vector<PassKv*> kvs_;                        // [ranks], views_ as PassKv
    std::unique_ptr<RankPasses> passes_;
    std::optional<RankLogits> logits_;
};

}  // namespace slipstream
