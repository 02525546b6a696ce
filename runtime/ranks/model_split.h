// Both ways to split a model, each described by numbers per rank: of whole layers (layer_split.h) or of kv heads
// (tensor_split.h). Functions throw Unsupported with the reason if the model cannot be split so.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Returns the name of a part in messages: "layer" or "kv head".
[[nodiscard]] std::string_view part_name(SplitKind kind);
/// Returns the number of parts, layers or kv heads, of the model.
[[nodiscard]] std::int64_t n_parts(SplitKind kind, const ModelConfig& config);
/// Returns how many consecutive parts must stay on one rank: kv heads that share quantisation blocks
/// (heads_together()), 1 for layers.
[[nodiscard]] std::int64_t parts_together(SplitKind kind, const ModelConfig& config, const ModelWeights& weights);
/// Returns how many parts (layers or kv heads) each rank gets, in proportion to its share (> 0 each).
[[nodiscard]] std::vector<std::int64_t> parts_by_share(SplitKind kind, const ModelConfig& config,
                                                       const ModelWeights& weights, std::span<const double> shares);
/// Returns how many parts (layers or kv heads) each rank gets if all shares are equal.
[[nodiscard]] std::vector<std::int64_t> even_parts(SplitKind kind, const ModelConfig& config,
                                                   const ModelWeights& weights, std::size_t n_ranks);
/// Returns the shard of each rank if the ranks have `parts` [ranks] parts.
[[nodiscard]] std::vector<ModelShard> deal_parts(SplitKind kind, const ModelConfig& config, const ModelWeights& weights,
                                                 std::span<const std::int64_t> parts);
/// Returns the number of parts of each of `shards` [ranks]; the inverse of deal_parts().
[[nodiscard]] std::vector<std::int64_t> parts_of(SplitKind kind, std::span<const ModelShard> shards);

}  // namespace slipstream
