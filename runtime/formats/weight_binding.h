// Maps tensors by name to weights by role: knows the names of both formats, checks shapes against the configuration,
// and cuts fused projections. Invariant of the result: every view has the shape that weights.h states, and a supported
// type. It may start at any byte (safetensors does not align); the kernels read weights unaligned.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/formats/tensor_index.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Names without ".weight" and ".bias". Those from attn_norm on follow layer_prefix and the number of the layer.
struct WeightNames {
    std::string_view embedding, output_norm, lm_head;
    std::string_view layer_prefix;  // "blk."
    std::string_view attn_norm, q, k, v, qkv, attn_out, q_norm, k_norm;
    std::string_view ffn_norm, gate, up, gate_up, down;
    // Full names of tensors that would change the result and are not implemented: in a layer (after layer_prefix and
    // number), and outside.
    std::span<const std::string_view> foreign_in_layer, foreign_outside;
};

[[nodiscard]] const WeightNames& hugging_face_names();
[[nodiscard]] const WeightNames& gguf_names();

/// Whether a bias must be absent or present.
enum class BiasRule : std::uint8_t { Forbidden, Required, IfPresent };

/// Rules for the biases of the attention.
struct BindingRules {
    BiasRule qkv_bias = BiasRule::IfPresent;
    BiasRule out_bias = BiasRule::IfPresent;
};

/// Returns the weights, views into the memory of the tensors. Throws FormatError with the tensor that is missing,
/// unexpected, or of the wrong shape; Unsupported for a type that cannot be computed with, or a tensor of
/// WeightNames::foreign_in_layer or foreign_outside.
[[nodiscard]] ModelWeights bind_weights(const ModelConfig& config, const TensorIndex& tensors, const WeightNames& names,
                                        const BindingRules& rules);

}  // namespace slipstream
