// The part of a model that one of several devices computes with: a thinner model. Either all matrices are split among
// the devices: whole kv heads with the query heads that read them, columns of the feed-forward, rows of the LM head.
// Query, key, value, gate, up and LM head are then cut by rows, which are the same bits as the whole's; attention
// output and down by columns, whose products are to be summed over all shards. Or whole layers are, and rows of the LM
// head (runtime/ranks): the same bits everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// How several devices share a model: the two ways that are told above, the second one first.
enum class SplitKind : std::uint8_t { Layers, Tensor };
/// "layers", "tensor".
[[nodiscard]] std::string_view split_name(SplitKind kind);

struct ModelShard {
    std::int64_t first_kv_group = 0;            // of ModelConfig::n_kv_groups(); usually a group is a kv head
    std::optional<std::int64_t> n_kv_groups{};  // nothing: all
    std::int64_t first_ffn = 0;                 // of d_ff
    std::optional<std::int64_t> n_ffn{};        // nothing: all of each layer
    std::int64_t first_vocab = 0, n_vocab = 0;  // rows of the LM head
    std::vector<std::int64_t> layers{};         // of the whole model, ascending; empty: all of them
};

[[nodiscard]] ModelShard whole_shard(const ModelConfig& config);

/// The thinner model in numbers. Every range is part of the model's and not empty (CHECKed).
[[nodiscard]] ModelConfig shard_config(const ModelConfig& config, const ModelShard& shard);

/// Its weights, as views of the same memory; the embedding table is whole. What is added to a sum over shares stands in
/// the first one: the attention output's bias, in the shard of group 0. Throws Unsupported where columns would be cut
/// inside a block of the matrix's type.
[[nodiscard]] ModelWeights shard_weights(const ModelWeights& weights, const ModelConfig& config,
                                         const ModelShard& shard);

}  // namespace slipstream
