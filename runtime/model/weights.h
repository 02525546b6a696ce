// A model's weights by role: views into the mapped files, or into a loaded model's packs; fused projections already cut
// into their parts. Owns nothing. A view into a file may begin at any byte: files align as they like.
#pragma once

#include <vector>

#include "kernels/base/tensor_view.h"

namespace slipstream {

struct LayerWeights {
    ConstTensorView attn_norm;      // [d_model]
    ConstTensorView q;              // [n_q_heads * head_dim, d_model]
    ConstTensorView k;              // [n_kv_heads * head_dim, d_model]
    ConstTensorView v;              // [n_kv_heads * head_dim, d_model]
    ConstTensorView q_bias;         // [n_q_heads * head_dim] or empty
    ConstTensorView k_bias;         // [n_kv_heads * head_dim] or empty
    ConstTensorView v_bias;         // the same
    ConstTensorView q_norm;         // [head_dim] or empty (Qwen3)
    ConstTensorView k_norm;         // [head_dim] or empty
    ConstTensorView attn_out;       // [d_model, n_q_heads * head_dim]
    ConstTensorView attn_out_bias;  // [d_model] or empty
    ConstTensorView ffn_norm;       // [d_model]
    ConstTensorView gate;           // [d_ff, d_model]
    ConstTensorView up;             // [d_ff, d_model]
    ConstTensorView down;           // [d_model, d_ff]
};

/// Norms and biases may come as F32, F16 or BF16 and are widened when the model is loaded onto a device.
struct ModelWeights {
    ConstTensorView token_embedding;  // [vocab, d_model]
    std::vector<LayerWeights> layers;
    ConstTensorView output_norm;  // [d_model]
    ConstTensorView lm_head;      // [vocab, d_model]; the embedding again where tied
};

}  // namespace slipstream
