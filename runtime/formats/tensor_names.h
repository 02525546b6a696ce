// Names of tensors in files, by role. Each family has a table per file format (families/); most start from the common
// tables here.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "runtime/model/weights.h"

namespace slipstream {

/// Names of a matrix of the experts of a layer, after layer_prefix and number: of each expert's own tensor, `before`,
/// the number of the expert, `after`; or of one tensor [n_experts, rows, cols] of all experts. A file has one or the
/// other.
struct ExpertNames {
    std::string_view before, after;  // "mlp.experts.", ".gate_proj.weight"
    std::string_view stacked;        // "ffn_gate_exps.weight"; empty: the format has no such tensor
};

/// Names of the experts' tensors of a layer, after layer_prefix and number, in files that have one tensor of gate and
/// up (gpt-oss in Hugging Face directories): rows of gate and of up alternate. In floats, the matrices are transposed:
/// gate_up [n_experts, d_model, 2 * d_ff] and down [n_experts, d_ff, d_model]. In MXFP4, X_blocks [n_experts, rows,
/// cols / 32, 16] and X_scales [n_experts, rows, cols / 32] are U8 (StoredMatrix).
struct FusedExpertNames {
    std::string_view gate_up;       // "mlp.experts.gate_up_proj"
    std::string_view gate_up_bias;  // [n_experts, 2 * d_ff]
    std::string_view down;
};

/// Names of the tensors of a model in one file format. The full name of a layer's tensor is layer_prefix, the number of
/// the layer, ".", and the name here. An empty name: models of the family do not have the tensor.
struct TensorNames {
    std::string_view layer_prefix;  // "blk."
    std::int64_t first_layer = 0;   // number of layer 0 in the names
    std::array<std::string_view, kTensorRoles> names{};
    // Fused projections, without ".weight" and ".bias".
    std::string_view qkv;      // query, key and value rows
    std::string_view gate_up;  // gate rows, then up rows
    // DeltaIn with the rows of the gate, whole; empty: models of the family have none.
    std::string_view delta_in_with_gate;
    // The gate and up matrices of all experts, [n_experts, gate rows and up rows, cols], whole; in place of their own.
    std::string_view experts_gate_up;
    // [kExpertTensors]: of layers that have experts; empty names: models of the family have none.
    std::array<ExpertNames, kExpertTensors.size()> experts{};
    FusedExpertNames fused_experts;  // instead of `experts`; empty: the format has no such tensors
    // [kExpertTensors]: gate, up and down of the part that all tokens pass, in layers that have experts (shared
    // experts).
    std::array<std::string_view, kExpertTensors.size()> shared_expert{};
    // Tensors of a layer, after layer_prefix and number, that change the result. A file that has one of them is refused
    // unless `names` has it, too; so is a file with a bias "X.bias" of a tensor "X.weight" of `names`.
    std::span<const std::string_view> foreign_in_layer;

    constexpr std::string_view& operator[](TensorRole role) { return names[static_cast<std::size_t>(role)]; }
    constexpr std::string_view operator[](TensorRole role) const { return names[static_cast<std::size_t>(role)]; }
};

namespace tensor_names {

inline constexpr std::array<std::string_view, 14> kHfForeignInLayer{"mlp.gate.weight",
                                                                    "block_sparse_moe.gate.weight",
                                                                    "router.proj.weight",
                                                                    "mlp.gate.e_score_correction_bias",
                                                                    "mlp.shared_expert.gate_proj.weight",
                                                                    "mlp.shared_experts.gate_proj.weight",
                                                                    "mlp.shared_expert_gate.weight",
                                                                    "layer_scalar",
                                                                    "self_attn.sinks",
                                                                    "self_attn.gate_proj.weight",
                                                                    "self_attn.q_norm.weight",
                                                                    "self_attn.k_norm.weight",
                                                                    "pre_feedforward_layernorm.weight",
                                                                    "post_feedforward_layernorm.weight"};
inline constexpr std::array<std::string_view, 15> kGgufForeignInLayer{
    "layer_output_scale.weight", "attn_sinks.weight",          "ffn_gate_inp.weight",
    "exp_probs_b.bias",          "ffn_up_shexp.weight",        "ffn_gate_inp_shexp.weight",
    "ffn_gate_exps.scale",       "ffn_up_exps.scale",          "ffn_gate_up_exps.scale",
    "ffn_down_exps.scale",       "post_attention_norm.weight", "post_ffw_norm.weight",
    "attn_q_norm.weight",        "attn_k_norm.weight",         "attn_gate.weight"};

/// Returns the names of pre-norm decoders in Hugging Face directories.
[[nodiscard]] constexpr TensorNames hugging_face() {
    using enum TensorRole;
    TensorNames n{.layer_prefix = "model.layers.",
                  .qkv = "self_attn.qkv_proj",
                  .gate_up = "mlp.gate_up_proj",
                  .foreign_in_layer = kHfForeignInLayer};
    n[TokenEmbedding] = "model.embed_tokens.weight";
    n[OutputNorm] = "model.norm.weight";
    n[LmHead] = "lm_head.weight";
    n[AttnNorm] = "input_layernorm.weight";
    n[Q] = "self_attn.q_proj.weight";
    n[K] = "self_attn.k_proj.weight";
    n[V] = "self_attn.v_proj.weight";
    n[QBias] = "self_attn.q_proj.bias";
    n[KBias] = "self_attn.k_proj.bias";
    n[VBias] = "self_attn.v_proj.bias";
    n[AttnOut] = "self_attn.o_proj.weight";
    n[AttnOutBias] = "self_attn.o_proj.bias";
    n[FfnNorm] = "post_attention_layernorm.weight";
    n[Gate] = "mlp.gate_proj.weight";
    n[Up] = "mlp.up_proj.weight";
    n[Down] = "mlp.down_proj.weight";
    return n;
}

/// Returns the names of pre-norm decoders in GGUF files. A fused gate and up matrix has the name of up alone (phi3).
[[nodiscard]] constexpr TensorNames gguf() {
    using enum TensorRole;
    TensorNames n{
        .layer_prefix = "blk.", .qkv = "attn_qkv", .gate_up = "ffn_up", .foreign_in_layer = kGgufForeignInLayer};
    n[TokenEmbedding] = "token_embd.weight";
    n[OutputNorm] = "output_norm.weight";
    n[LmHead] = "output.weight";
    n[AttnNorm] = "attn_norm.weight";
    n[Q] = "attn_q.weight";
    n[K] = "attn_k.weight";
    n[V] = "attn_v.weight";
    n[QBias] = "attn_q.bias";
    n[KBias] = "attn_k.bias";
    n[VBias] = "attn_v.bias";
    n[AttnOut] = "attn_output.weight";
    n[AttnOutBias] = "attn_output.bias";
    n[FfnNorm] = "ffn_norm.weight";
    n[Gate] = "ffn_gate.weight";
    n[Up] = "ffn_up.weight";
    n[Down] = "ffn_down.weight";
    return n;
}

/// Returns `names` with the norms of each query and key head.
[[nodiscard]] constexpr TensorNames with_head_norms(TensorNames names) {
    const bool gguf = names.layer_prefix == "blk.";
    names[TensorRole::QNorm] = gguf ? "attn_q_norm.weight" : "self_attn.q_norm.weight";
    names[TensorRole::KNorm] = gguf ? "attn_k_norm.weight" : "self_attn.k_norm.weight";
    return names;
}

/// Returns `names` with norms after attention and feed-forward, beside those before them (Gemma 2 and 3).
[[nodiscard]] constexpr TensorNames with_post_norms(TensorNames names) {
    const bool gguf = names.layer_prefix == "blk.";
    names[TensorRole::AttnPostNorm] = gguf ? "post_attention_norm.weight" : "post_attention_layernorm.weight";
    names[TensorRole::FfnNorm] = gguf ? "ffn_norm.weight" : "pre_feedforward_layernorm.weight";
    names[TensorRole::FfnPostNorm] = gguf ? "post_ffw_norm.weight" : "post_feedforward_layernorm.weight";
    return names;
}

/// Returns `names` with the scale of a layer's output (Gemma 4).
[[nodiscard]] constexpr TensorNames with_output_scale(TensorNames names) {
    const bool gguf = names.layer_prefix == "blk.";
    names[TensorRole::OutputScale] = gguf ? "layer_output_scale.weight" : "layer_scalar";
    return names;
}

/// Returns `names` with a router and experts.
[[nodiscard]] constexpr TensorNames with_experts(TensorNames names) {
    const bool gguf = names.layer_prefix == "blk.";
    names[TensorRole::Router] = gguf ? "ffn_gate_inp.weight" : "mlp.gate.weight";
    if (gguf) {
        names.experts = {{{"ffn_gate.", ".weight", "ffn_gate_exps.weight"},
                          {"ffn_up.", ".weight", "ffn_up_exps.weight"},
                          {"ffn_down.", ".weight", "ffn_down_exps.weight"}}};
        names.experts_gate_up = "ffn_gate_up_exps.weight";
    } else {
        names.experts = {{{"mlp.experts.", ".gate_proj.weight", {}},
                          {"mlp.experts.", ".up_proj.weight", {}},
                          {"mlp.experts.", ".down_proj.weight", {}}}};
    }
    return names;
}

/// Returns `names` with a shared expert.
[[nodiscard]] constexpr TensorNames with_shared_expert(TensorNames names) {
    const bool gguf = names.layer_prefix == "blk.";
    if (gguf)
        names.shared_expert = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"};
    else
        names.shared_expert = {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight",
                               "mlp.shared_experts.down_proj.weight"};
    return names;
}

}  // namespace tensor_names

}  // namespace slipstream
