// Tensor split: distributes the matrices of a model over several devices (ranks). Each rank has whole kv heads with the
// query heads that read them, and in the same proportion columns of the feed-forward and rows of the LM head; so the
// numbers of kv heads identify a split. If layers have different numbers of kv heads, "kv head" here is one of the
// equal groups of ModelConfig::n_kv_groups(). Quantised matrices are cut between quantisation blocks: in attention
// output and down, a block spans columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Returns how many kv heads each rank gets, in proportion to its share (> 0 each); the sum is the model's. Throws
/// Unsupported with the reason if the model cannot be cut so: layers with different numbers of feed-forward columns,
/// more devices than kv heads, heads that share quantisation blocks, a share of less than one head or group.
[[nodiscard]] std::vector<std::int64_t> heads_by_share(const ModelConfig& config, const ModelWeights& weights,
                                                       std::span<const double> shares);

/// Returns the number of consecutive kv heads that must stay on one rank, since the columns of fewer are not whole
/// quantisation blocks of the attention output; usually 1. Throws Unsupported if layers have different numbers of
/// feed-forward columns.
[[nodiscard]] std::int64_t heads_together(const ModelConfig& config, const ModelWeights& weights);

/// Returns the shard of each rank if the ranks have `n_kv_heads` [ranks] kv heads (each >= 1, in sum those of the
/// model: CHECKed). Throws Unsupported as heads_together(), if heads_together() are separated, or if there are too few
/// columns or rows.
[[nodiscard]] std::vector<ModelShard> deal_heads(const ModelConfig& config, const ModelWeights& weights,
                                                 std::span<const std::int64_t> n_kv_heads);

}  // namespace slipstream
