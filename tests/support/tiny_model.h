// A seeded random model in memory, for tests that need a forward pass but no files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/formats/model_files.h"

namespace slipstream {

struct LayerHeads {
    std::int64_t n_q_heads = 0;
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
};

struct TinyModelOptions {
    std::int64_t d_model = 64;
    std::int64_t d_ff = 96;
    std::int64_t n_layers = 2;
    std::int64_t n_q_heads = 4;
    std::int64_t n_kv_heads = 2;
    std::int64_t head_dim = 16;
    std::vector<LayerHeads> heads{};  // [n_layers]; empty: all layers have n_q_heads, n_kv_heads and head_dim
    std::int64_t vocab = 97;
    std::int64_t context_tokens = 2048;
    // Sliding window, in positions, of every layer but the first (of a single layer, too); 0: none.
    std::int64_t window = 0;
    DType weight_type = DType::F32;  // if quantised, sizes must be multiples of its block
    std::optional<DType> v_type{};   // type of the matrices V and Down; none: weight_type
    bool biases = false;             // biases of q, k and v, as in Qwen2
    bool output_bias = false;        // bias of the attention output
    bool head_norms = false;         // norms of q and k, as in Qwen3
    /// Gemma: norms after each half, GELU, softcaps, scaled embedding; windowed layers have a RoPE theta of their own.
    bool gemma = false;
    // What only some families have, all together: every third layer without RoPE and without a window, queries that
    // grow with the position, gates of the attention, a norm of the embedding, norms after each half with an epsilon of
    // their own, factors of the residual stream and of logits.
    bool varied = false;
    /// As Gemma 4: every second layer and the last have no window and no value matrix, and rotate a quarter of their
    /// pairs. For use with `heads`. Layers with experts have a dense feed-forward of width d_ff, too, and norms before
    /// and after each of the two.
    bool gemma4 = false;
    /// As Qwen3.5: two of three layers are delta nets, the others have attention with the gate in the query matrix.
    bool delta_nets = false;
    std::int64_t n_experts = 0;  // of every layer but the first, which is dense, if there are several; 0: none
    std::int64_t n_chosen = 2;   // for each token
    std::int64_t expert_d_ff = 32;
    /// gpt-oss: sinks, every second layer from the first without a window, biases of router and experts, a clamped
    /// activation. For use with experts.
    bool gpt_oss = false;
    bool shared_expert = false;    // of width d_ff, beside the experts; the router then is as in GLM-4.5
    std::int64_t head_period = 0;  // rows of the LM head repeat with this period, so that logits tie; 0: no repetition
    DType kv_dtype = DType::F16;
    std::uint32_t seed = 1;
};

[[nodiscard]] std::unique_ptr<ModelFiles> make_tiny_model(const TinyModelOptions& options);

}  // namespace slipstream
