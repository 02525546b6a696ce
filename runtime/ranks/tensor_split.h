// How the matrices of a model are shared out over several devices (ranks): whole kv heads with the query heads that
// read them, and in their proportion columns of the feed-forward and rows of the LM head. So numbers of kv heads name a
// split. Quantised matrices are cut between blocks: attention output and down lie in blocks of columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// How many kv heads each rank has, by its share (> 0 each); the sum is the model's. Throws Unsupported, which says
/// why, where a model cannot be cut so: more devices than kv heads, heads that blocks hold together, a share below one.
[[nodiscard]] std::vector<std::int64_t> heads_by_share(const ModelConfig& config, const ModelWeights& weights,
                                                       std::span<const double> shares);

/// kv heads that cannot be parted, since the columns of fewer are no whole blocks of the attention output; 1 as a rule.
[[nodiscard]] std::int64_t heads_together(const ModelConfig& config, const ModelWeights& weights);

/// What each rank has of a model where they have `n_kv_heads` [ranks] of its kv heads (>= 1 each, all in all the
/// model's: CHECKed). Throws Unsupported where heads_together() are parted, or there are too few columns or rows.
[[nodiscard]] std::vector<ModelShard> deal_heads(const ModelConfig& config, const ModelWeights& weights,
                                                 std::span<const std::int64_t> n_kv_heads);

}  // namespace slipstream
