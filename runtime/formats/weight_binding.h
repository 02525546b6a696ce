// From tensors by name to weights by role: both formats' names, shapes checked against the configuration, fused
// projections cut. Invariant of the result: every view is of the shape that weights.h states and of a served type.
// Where it begins is the file's affair, any byte (safetensors does not align): the kernels read weights unaligned.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/formats/tensor_index.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Names without ".weight" and ".bias"; those from attn_norm on stand behind layer_prefix and the layer's number.
struct WeightNames {
    std::string_view embedding, output_norm, lm_head;
    std::string_view layer_prefix;  // "blk."
    std::string_view attn_norm, q, k, v, qkv, attn_out, q_norm, k_norm;
    std::string_view ffn_norm, gate, up, gate_up, down;
    // Full names of tensors that would change the result and that we do not compute with; in each layer, and outside.
    std::span<const std::string_view> foreign_in_layer, foreign_outside;
};

[[nodiscard]] const WeightNames& hugging_face_names();
[[nodiscard]] const WeightNames& gguf_names();

enum class BiasRule : std::uint8_t { Forbidden, Required, IfPresent };

struct BindingRules {
    BiasRule qkv_bias = BiasRule::IfPresent;
    BiasRule out_bias = BiasRule::IfPresent;
};

/// Throws FormatError naming the tensor that is missing, unexpected or has the wrong shape; Unsupported for a type that
/// cannot be computed on. The views point where the index's tensors do.
[[nodiscard]] ModelWeights bind_weights(const ModelConfig& config, const TensorIndex& tensors, const WeightNames& names,
                                        const BindingRules& rules);

}  // namespace slipstream
