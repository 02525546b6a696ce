// How whole layers of a model are shared out over several devices (ranks), and rows of its LM head with them. Layers
// are dealt out in turn, so that every link is busy while any device computes. Each output element is computed as in
// the whole model: the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"

namespace slipstream {

/// How many of `n_layers` each rank has, by its share (> 0 each); the sum is n_layers. Throws Unsupported where a share
/// comes to less than one layer.
[[nodiscard]] std::vector<std::int64_t> layers_by_share(std::int64_t n_layers, std::span<const double> shares);

/// What each rank has of a model where they have `n_layers` [ranks] of its layers (>= 1 each, all in all the model's:
/// CHECKed): A, A, B, A, A, B, ... for 2:1. Rows of the LM head go by the same shares, in whole runs of 16. Throws
/// Unsupported where the vocabulary is too small for that.
[[nodiscard]] std::vector<ModelShard> deal_layers(const ModelConfig& config, std::span<const std::int64_t> n_layers);

}  // namespace slipstream
