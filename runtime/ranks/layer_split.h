// Layer split: distributes whole layers of a model, and rows of its LM head, over several devices (ranks). Layers are
// dealt in turn, so that every link is busy while any device computes. Each output element is computed as in the whole
// model, with the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"

namespace slipstream {

/// Returns how many of `n_layers` layers each rank gets, in proportion to its share (> 0 each); the sum is n_layers.
/// Throws Unsupported if a share is less than one layer.
[[nodiscard]] std::vector<std::int64_t> layers_by_share(std::int64_t n_layers, std::span<const double> shares);

/// Returns the shard of each rank if the ranks have `n_layers` [ranks] layers (each >= 1, in sum those of the model:
/// CHECKed). Layers alternate: A, A, B, A, A, B, ... for 2:1. Rows of the LM head are divided in the same proportion,
/// in runs of 16. Throws Unsupported if the vocabulary is too small for that.
[[nodiscard]] std::vector<ModelShard> deal_layers(const ModelConfig& config, std::span<const std::int64_t> n_layers);

}  // namespace slipstream
