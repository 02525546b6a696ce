// Granite 3 and dense models of Granite 4 (transformers: models/granite; llama.cpp: src/models/granite.cpp): Llama's
// layers, with factors for embedding, scores, the results of both halves, and logits.
#include <array>
#include <string_view>

#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Sets the factor of attention scores in all layers.
void set_score_scale(ModelConfig& config, double factor) {
    check_scale("attention scores", factor);
    for (LayerConfig& layer : config.layers) layer.attention().scale_dim = 1.0 / (factor * factor);
}

// Sets the scale of logits to 1 / `divisor`. Files of both formats store the divisor.
void set_logit_divisor(ModelConfig& config, double divisor) {
    check_scale("logits", divisor);
    config.logit_scale = static_cast<float>(1.0 / divisor);
}

void read_granite(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    config.embedding_scale = static_cast<float>(fields.number("embedding_multiplier").value_or(1.0));
    config.residual_scale = static_cast<float>(fields.number("residual_multiplier").value_or(1.0));
    set_score_scale(config, fields.number("attention_multiplier").value_or(1.0));
    set_logit_divisor(config, fields.number("logits_scaling").value_or(1.0));
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
}

// Reads the keys that only Granite has. The value 0 of a key means that it is not used. In files of these models,
// "rope.scaling.finetuned" says whether the layers have RoPE, as llama.cpp reads it.
void read_granite_gguf(const GgufKeys& keys, ModelConfig& config) {
    const auto factor = [&](std::string_view key) {
        const double value = keys.number(key).value_or(0.0);
        return value == 0.0 ? 1.0 : value;
    };
    config.embedding_scale = static_cast<float>(factor("embedding_scale"));
    config.residual_scale = static_cast<float>(factor("residual_scale"));
    set_logit_divisor(config, factor("logit_scale"));
    if (const double scale = keys.number("attention.scale").value_or(0.0); scale != 0.0) set_score_scale(config, scale);
    if (!keys.file().boolean(keys.key("rope.scaling.finetuned")).value_or(true))
        for (LayerConfig& layer : config.layers) layer.attention().rope = kNoRope;
}

void set_published_granite(ModelConfig& config, std::int64_t /*window*/) {
    config.embedding_scale = 12.0F;
    config.residual_scale = 0.22F;
    set_score_scale(config, 1.0 / static_cast<double>(config.attention(0).head_dim));
    set_logit_divisor(config, 8.0);
}

constexpr std::array<std::string_view, 4> kFactorKeys{"attention.scale", "logit_scale", "embedding_scale",
                                                      "residual_scale"};

}  // namespace

constinit const Family kGranite{
    .name = "granite",
    .set_published = set_published_granite,
    .hf_class = "GraniteForCausalLM",
    .hf_model_type = "granite",
    .hf_defaults = {.context_tokens = 2048, .n_q_heads = 32, .vocab = 32000},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_granite,
    .gguf_name = "granite",
    .gguf_rope_layout = RopeLayout::Interleaved,
    .gguf_keys = kFactorKeys,
    .gguf_names = tensor_names::gguf(),
    .gguf_biases = {},
    .read_gguf = read_granite_gguf,
};

}  // namespace slipstream
