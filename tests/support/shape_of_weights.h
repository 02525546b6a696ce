// Weights by their shapes alone, without memory: what is planned with.
#pragma once

#include <cstdint>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Matrices in F16 and an LM head of its own, as `config` has them; no norms, no biases.
[[nodiscard]] inline ModelWeights shape_of_weights(const ModelConfig& config) {
    const auto matrix = [](std::int64_t rows, std::int64_t cols) {
        return ConstTensorView(matrix_view<const std::byte>(nullptr, DType::F16, rows, cols));
    };
    const std::int64_t q = config.n_q_heads * config.head_dim;
    const std::int64_t kv = config.n_kv_heads * config.head_dim;
    LayerWeights layer;
    layer.q = matrix(q, config.d_model);
    layer.k = layer.v = matrix(kv, config.d_model);
    layer.attn_out = matrix(config.d_model, q);
    layer.gate = layer.up = matrix(config.d_ff, config.d_model);
    layer.down = matrix(config.d_model, config.d_ff);
    ModelWeights weights;
    weights.layers.assign(static_cast<std::size_t>(config.n_layers), layer);
    weights.lm_head = matrix(config.vocab, config.d_model);
    return weights;
}

}  // namespace slipstream
