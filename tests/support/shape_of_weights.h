// Weights that have types and shapes but no data, for plans.
#pragma once

#include <cstdint>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Returns the matrices of `config` in F16, with an LM head of its own; no norms, no biases, no token embedding.
[[nodiscard]] inline ModelWeights shape_of_weights(const ModelConfig& config) {
    const auto matrix = [](std::int64_t rows, std::int64_t cols) {
        return ConstTensorView(matrix_view<const std::byte>(nullptr, DType::F16, rows, cols));
    };
    ModelWeights weights;
    for (std::int64_t i = 0; i < config.n_layers(); ++i) {
        LayerWeights& layer = weights.layers.emplace_back();
        for (const TensorInfo& info : kLayerTensors)
            if (info.is_matrix() && can_have(config.layers[i], info.role) &&
                (info.role != TensorRole::AttnGate || config.attention(i).output_gate) &&
                dim_size(info.rows, config, i) > 0 && dim_size(info.cols, config, i) > 0)
                layer[info.role] = matrix(dim_size(info.rows, config, i), dim_size(info.cols, config, i));
        layer.experts.resize(static_cast<std::size_t>(config.experts(i).n_experts));
        for (ExpertWeights& expert : layer.experts)
            for (const TensorInfo& info : kExpertTensors)
                expert[info.role] = matrix(dim_size(info.rows, config, i), dim_size(info.cols, config, i));
    }
    weights.lm_head = matrix(config.vocab, config.d_model);
    return weights;
}

}  // namespace slipstream
