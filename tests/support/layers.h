// Configures models in which all layers have the same sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

struct LayerSizes {
    std::int64_t n_layers = 1;
    std::int64_t d_ff = 0;
    std::int64_t n_q_heads = 0;
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
};

/// Sets config.layers, and RoPE over whole heads.
inline void set_layers(ModelConfig& config, const LayerSizes& sizes) {
    config.layers.assign(
        static_cast<std::size_t>(sizes.n_layers),
        {.mixer =
             AttentionConfig{.n_q_heads = sizes.n_q_heads, .n_kv_heads = sizes.n_kv_heads, .head_dim = sizes.head_dim},
         .feed_forward = {.d_ff = sizes.d_ff}});
    config.ropes.front().n_rotated = sizes.head_dim;
}

/// Returns the sizes of the first layer and the number of layers.
inline LayerSizes layer_sizes(const ModelConfig& config) {
    const AttentionConfig& attention = config.attention(0);
    return {.n_layers = config.n_layers(),
            .d_ff = config.layers.front().feed_forward.d_ff,
            .n_q_heads = attention.n_q_heads,
            .n_kv_heads = attention.n_kv_heads,
            .head_dim = attention.head_dim};
}

/// Sets the number of layers: repeats the last layer, or drops layers at the end.
inline void set_n_layers(ModelConfig& config, std::int64_t n_layers) {
    config.layers.resize(static_cast<std::size_t>(n_layers), config.layers.back());
}

inline void set_windows(ModelConfig& config, const std::vector<std::int64_t>& windows) {
    for (std::size_t i = 0; i < windows.size(); ++i) config.layers.at(i).attention().window = windows[i];
}

/// Returns the roles of the matrices that every layer with attention has, in reading order.
inline std::vector<TensorRole> layer_matrices() {
    const LayerConfig layer{.mixer = AttentionConfig{}};
    std::vector<TensorRole> roles;
    for (const TensorInfo& info : kLayerTensors)
        if (info.is_matrix() && can_have(layer, info.role) && info.role != TensorRole::AttnGate)
            roles.push_back(info.role);
    return roles;
}

}  // namespace slipstream
