// The part of a model that one of several devices computes with: a thinner model. Either all matrices are split among
// the devices: whole kv heads with the query heads that read them, columns of the feed-forward, rows of the LM head.
// Query, key, value, gate, up and LM head matrices are then cut by rows, whose results have the bits of the whole
// matrix; attention output and down matrices are cut by columns, and their products must be summed over all shards. Or
// whole layers are split among the devices, and rows of the LM head (runtime/ranks): the bits are then those of the
// whole model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// How a model is split over several devices. Layers: each device has whole layers, and rows of the LM head. Tensor:
/// each device has a part of all matrices: whole kv heads with their query heads, columns of the feed-forward, rows of
/// the LM head.
enum class SplitKind : std::uint8_t { Layers, Tensor };
/// Returns "layers" or "tensor".
[[nodiscard]] std::string_view split_name(SplitKind kind);

struct ModelShard {
    // First KV group of the shard (ModelConfig::n_kv_groups()); usually a group is a kv head.
    std::int64_t first_kv_group = 0;
    std::optional<std::int64_t> n_kv_groups{};  // nullopt: all
    std::int64_t first_ffn = 0;                 // of d_ff
    std::optional<std::int64_t> n_ffn{};        // nullopt: all of each layer
    std::int64_t first_vocab = 0, n_vocab = 0;  // rows of the LM head
    // Layers of the device, numbered as in the whole model, ascending; empty: all layers.
    std::vector<std::int64_t> layers{};
};

[[nodiscard]] ModelShard whole_shard(const ModelConfig& config);

/// Returns the configuration of the shard: that of the model, with fewer heads, feed-forward columns, vocabulary rows
/// or layers. Every range of `shard` must be within the model and not empty (CHECKed).
[[nodiscard]] ModelConfig shard_config(const ModelConfig& config, const ModelShard& shard);

/// Returns the weights of the shard, as views of the memory of `weights`; the embedding table is whole. A tensor that
/// is added once to the sum over all shards (the attention output's bias) is in the shard of group 0 only. Throws
/// Unsupported if columns would be cut inside a quantisation block of the matrix's type.
[[nodiscard]] ModelWeights shard_weights(const ModelWeights& weights, const ModelConfig& config,
                                         const ModelShard& shard);

}  // namespace slipstream
