// OLMoE (transformers: models/olmoe; llama.cpp: src/models/olmoe.cpp). Norms of queries and keys over all heads
// together; experts whose weights are not normalised.
#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

void set_layers(ModelConfig& config, const ExpertsConfig& experts) {
    for (LayerConfig& layer : config.layers) {
        layer.attention().norms_projections = true;
        layer.feed_forward.d_ff = 0;
        layer.feed_forward.experts = experts;
    }
}

void read_olmoe(const JsonFields& fields, HfConfig& result) {
    if (const auto clip = fields.number("clip_qkv"))
        throw Unsupported(fmt::format("{}: clip_qkv = {} is not served", fields.name(), *clip));
    ExpertsConfig experts = read_hf_experts(fields, {.count = "num_experts",
                                                     .other_count = "num_local_experts",
                                                     .d_ff = "intermediate_size",
                                                     .absent_count = 64,
                                                     .absent_chosen = 8});
    experts.weighting.normalized = fields.boolean("norm_topk_prob").value_or(false);
    set_layers(result.model, experts);
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
}

// The width of an expert is "feed_forward_length" in files of llama.cpp's converter.
void read_olmoe_gguf(const GgufKeys& keys, ModelConfig& config) {
    ExpertsConfig experts = read_gguf_experts(keys, GgufGating::Softmax, config.layers.front().feed_forward.d_ff);
    experts.weighting.normalized = keys.file().boolean(keys.key("expert_weights_norm")).value_or(false);
    set_layers(config, experts);
}

// Sets what the published models compute.
void set_olmoe(ModelConfig& config, std::int64_t /*window*/) {
    ExpertsConfig experts = config.layers.front().feed_forward.experts;
    experts.weighting.normalized = false;
    set_layers(config, experts);
}

}  // namespace

constinit const Family kOlmoe{
    .name = "olmoe",
    .set_published = set_olmoe,
    .hf_class = "OlmoeForCausalLM",
    .hf_model_type = "olmoe",
    .hf_defaults = {.context_tokens = 4096, .rms_eps = 1e-5, .n_q_heads = 16, .vocab = 50304},
    .hf_names = tensor_names::with_experts(tensor_names::with_head_norms(tensor_names::hugging_face())),
    .hf_has_experts = true,
    .read_hf = read_olmoe,
    .gguf_name = "olmoe",
    .gguf_keys = kExpertKeys,
    .gguf_names = tensor_names::with_experts(tensor_names::with_head_norms(tensor_names::gguf())),
    .gguf_biases = {},
    .read_gguf = read_olmoe_gguf,
};

}  // namespace slipstream
