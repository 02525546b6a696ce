// GLM-4.5-Air (transformers: models/glm4_moe; llama.cpp: src/models/glm4-moe.cpp). Biases of query, key and value; half
// of each head rotates. The first layers are dense; the others have experts, scored by a sigmoid and chosen with a
// correction bias, and a shared expert. The layer that proposes further tokens, after those of the model, is read by
// head_files.h, for drafting.
//
// Not served: GLM-4.5 and 4.6 of 355B (norms of query and key heads).
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

constexpr float kSumOffset = 1e-20F;  // added to the sum of the chosen scores, as in transformers

constexpr TensorNames hf_names() {
    TensorNames names = tensor_names::with_shared_expert(tensor_names::with_experts(tensor_names::hugging_face()));
    names[TensorRole::ChoiceBias] = "mlp.gate.e_score_correction_bias";
    return names;
}

constexpr TensorNames gguf_names() {
    TensorNames names = tensor_names::with_shared_expert(tensor_names::with_experts(tensor_names::gguf()));
    names[TensorRole::ChoiceBias] = "exp_probs_b.bias";
    names[TensorRole::FfnNorm] = "post_attention_norm.weight";
    return names;
}

void set_experts(ModelConfig& config, ExpertsConfig experts, std::int64_t n_shared, std::int64_t n_dense_layers) {
    if (n_shared < 1 || n_shared > 64)
        throw FormatError(fmt::format("{} shared experts; 1 to 64 are served", n_shared));
    if (n_dense_layers < 0 || n_dense_layers > config.n_layers())
        throw FormatError(fmt::format("{} of {} layers are dense", n_dense_layers, config.n_layers()));
    if (experts.d_ff < 1 || experts.d_ff > 1 << 22) throw FormatError(fmt::format("experts of width {}", experts.d_ff));
    experts.weighting.score = ExpertScore::Sigmoid;
    experts.weighting.sum_offset = kSumOffset;
    for (std::int64_t i = n_dense_layers; i < config.n_layers(); ++i) {
        config.layers[i].feed_forward.experts = experts;
        config.layers[i].feed_forward.d_ff = n_shared * experts.d_ff;
    }
}

void read_glm4_moe(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    if (fields.boolean("use_qk_norm").value_or(false))
        throw Unsupported(
            fmt::format("{}: use_qk_norm (norms of heads: GLM-4.5 and 4.6 of 355B) is not served", fields.name()));
    if (fields.integer("n_group").value_or(1) > 1)
        throw Unsupported(fmt::format("{}: experts that are chosen by groups (n_group) are not served", fields.name()));
    ExpertsConfig experts = read_hf_experts(fields, {.count = "n_routed_experts",
                                                     .other_count = "num_local_experts",
                                                     .d_ff = "moe_intermediate_size",
                                                     .absent_count = 128,
                                                     .absent_chosen = 8,
                                                     .absent_d_ff = 1408});
    experts.weighting.normalized = fields.boolean("norm_topk_prob").value_or(true);
    experts.weighting.scale = static_cast<float>(fields.number("routed_scaling_factor").value_or(1.0));
    set_experts(config, experts, fields.integer("n_shared_experts").value_or(1),
                fields.integer("first_k_dense_replace").value_or(1));
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Forbidden};
}

void read_glm4_moe_gguf(const GgufKeys& keys, ModelConfig& config) {
    drop_proposing_layers(keys, config);
    ExpertsConfig experts = read_gguf_experts(keys, GgufGating::Sigmoid, std::nullopt);
    experts.weighting.normalized = keys.file().boolean(keys.key("expert_weights_norm")).value_or(true);
    experts.weighting.scale = static_cast<float>(keys.number("expert_weights_scale").value_or(1.0));
    set_experts(config, experts, keys.integer("expert_shared_count").value_or(1),
                keys.integer("leading_dense_block_count").value_or(1));
}

}  // namespace

constinit const Family kGlm4Moe{
    .name = "glm4moe",
    .head = HeadNaming::OneLayer,
    .hf_class = "Glm4MoeForCausalLM",
    .hf_model_type = "glm4_moe",
    .hf_defaults = {.context_tokens = 131072,
                    .n_kv_heads = 8,
                    .rms_eps = 1e-5,
                    .n_q_heads = 96,
                    .vocab = 151552,
                    .rotated_share = 0.5},
    .hf_names = hf_names(),
    .hf_has_experts = true,
    .read_hf = read_glm4_moe,
    .gguf_name = "glm4moe",
    .gguf_keys = kExpertKeys,
    .gguf_names = gguf_names(),
    .gguf_biases = {},
    .read_gguf = read_glm4_moe_gguf,
};

}  // namespace slipstream
