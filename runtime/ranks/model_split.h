// Both ways to split a model, told by numbers: of whole layers that each rank has (layer_split.h), or of kv heads
// (tensor_split.h). Throw Unsupported, with the reason, where the model cannot be shared out so.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// What is counted: "layer", "kv head".
[[nodiscard]] std::string_view part_name(SplitKind kind);
/// All that there are.
[[nodiscard]] std::int64_t n_parts(SplitKind kind, const ModelConfig& config);
/// How many of them stay on one rank: heads whose columns lie in the same blocks (heads_together()).
[[nodiscard]] std::int64_t parts_together(SplitKind kind, const ModelConfig& config, const ModelWeights& weights);
/// How many each rank has, by its share (> 0 each).
[[nodiscard]] std::vector<std::int64_t> parts_by_share(SplitKind kind, const ModelConfig& config,
                                                       const ModelWeights& weights, std::span<const double> shares);
/// The same without shares: as even as it goes.
[[nodiscard]] std::vector<std::int64_t> even_parts(SplitKind kind, const ModelConfig& config,
                                                   const ModelWeights& weights, std::size_t n_ranks);
/// What each has then.
[[nodiscard]] std::vector<ModelShard> deal_parts(SplitKind kind, const ModelConfig& config, const ModelWeights& weights,
                                                 std::span<const std::int64_t> parts);
/// The numbers that name a split, of its shares.
[[nodiscard]] std::vector<std::int64_t> parts_of(SplitKind kind, std::span<const ModelShard> shards);

}  // namespace slipstream
