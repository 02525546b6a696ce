// Muse Glimmer, text (transformers: models/muse_glimmer; llama.cpp: src/models/muse-glimmer.cpp). Norms before and
// after each half of a layer, with weights 1 + w in Hugging Face directories (GGUF stores the sum); norms of the
// embedding, of queries and of keys without weights, queries with a factor; a gate on the result of attention. Three of
// four layers have windows and RoPE; the others attend to all positions and do not encode them.
#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Layers of a period, counted backwards from the last layer, which has no window, nor has every fourth one before it.
constexpr std::int64_t kPeriod = 4;
// Epsilon of the norms after attention and feed-forward, if the file does not say; GGUF never stores it.
constexpr float kPostNormEps = 1e-8F;
// Factor of queries, if config.json does not say. In GGUF files, it is the weights of the query norm.
constexpr double kQueryFactor = 3.87;
constexpr double kLogitScale = 0.19611613513818404;
constexpr double kLogitSoftcap = 20.0;

constexpr TensorNames with_gate(TensorNames names) {
    names[TensorRole::AttnGate] = names.layer_prefix == "blk." ? "attn_gate.weight" : "self_attn.gate_proj.weight";
    return names;
}

constexpr BindingRules gguf_rules() {
    BindingRules rules;
    rules.constants[TensorRole::EmbeddingNorm] = 1.0F;
    return rules;
}

void set_common(ModelConfig& config, double logit_scale, double logit_softcap) {
    check_softcap("logits", logit_softcap);
    check_scale("logits", logit_scale);
    config.logit_scale = static_cast<float>(logit_scale);
    config.logit_softcap = static_cast<float>(logit_softcap);
    for (LayerConfig& layer : config.layers) layer.attention().output_gate = true;
}

bool sees_everything(const ModelConfig& config, std::int64_t layer) {
    return (config.n_layers() - 1 - layer) % kPeriod == 0;
}

// Sets which layers have no RoPE: those for which "layer_rope_theta" has 0. transformers uses no other number of the
// field: the theta of the other layers is that of the model, so a different one is refused.
void read_ropes(const JsonFields& fields, ModelConfig& config) {
    const auto thetas = fields.numbers("layer_rope_theta");
    if (thetas && thetas->size() != config.layers.size())
        fields.fail("layer_rope_theta",
                    fmt::format("has {} numbers for {} layers", thetas->size(), config.layers.size()));
    for (std::int64_t i = 0; i < config.n_layers(); ++i) {
        const double theta = thetas ? (*thetas)[i] : sees_everything(config, i) ? 0.0 : 1.0;
        if (theta == 0.0) {
            config.layers[i].attention().rope = kNoRope;
        } else if (thetas && theta != config.ropes.front().theta) {
            throw Unsupported(fmt::format("{}: layer_rope_theta {} beside a rope_theta of {} is not served",
                                          fields.name(), theta, config.ropes.front().theta));
        }
    }
}

void read_windows(const JsonFields& fields, ModelConfig& config) {
    const auto window = fields.has("sliding_window") ? fields.integer("sliding_window") : 2048;
    if (fields.find("layer_types") != nullptr) return set_windows_by_type(fields, window, config);
    set_windows(fields, window, config);
    for (std::int64_t i = 0; i < config.n_layers(); ++i)
        if (sees_everything(config, i)) config.layers[i].attention().window = 0;
}

void read_muse(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    set_common(config, fields.number("output_multiplier").value_or(kLogitScale),
               fields.number("final_logit_softcapping").value_or(kLogitSoftcap));
    config.norm_offset = 1.0F;
    config.offsets_layer_norms_only = true;
    const double post_norm_eps = fields.number("post_norm_eps").value_or(kPostNormEps);
    if (!(post_norm_eps >= 1e-12 && post_norm_eps < 1.0))
        fields.fail("post_norm_eps", fmt::format("is {}", post_norm_eps));
    config.post_norm_eps = static_cast<float>(post_norm_eps);
    const double query_factor = fields.number("qk_scale_factor").value_or(kQueryFactor);
    check_scale("queries", query_factor);
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
    result.biases.constants[TensorRole::EmbeddingNorm] = 1.0F;
    result.biases.constants[TensorRole::QNorm] = static_cast<float>(query_factor);
    result.biases.constants[TensorRole::KNorm] = 1.0F;
    read_ropes(fields, config);
    read_windows(fields, config);
}

void read_muse_gguf(const GgufKeys& keys, ModelConfig& config) {
    set_common(config, keys.number("logit_scale").value_or(kLogitScale),
               keys.number("final_logit_softcapping").value_or(0.0));
    config.post_norm_eps = kPostNormEps;
    static_cast<void>(keys.required("attention.sliding_window"));
    read_gguf_windows(keys, kPeriod, config);
    config.ropes.front().theta = keys.number("rope.freq_base_swa").value_or(config.ropes.front().theta);
    for (LayerConfig& layer : config.layers)
        if (layer.attention().window == 0) layer.attention().rope = kNoRope;
}

void set_published_muse(ModelConfig& config, std::int64_t window) {
    set_common(config, kLogitScale, kLogitSoftcap);
    config.post_norm_eps = kPostNormEps;
    for (std::int64_t i = 0; i < config.n_layers(); ++i) {
        AttentionConfig& attention = config.layers[i].attention();
        attention.window = sees_everything(config, i) ? 0 : window;
        if (attention.window == 0) attention.rope = kNoRope;
    }
}

constexpr std::array<std::string_view, 2> kLogitKeys{"logit_scale", "final_logit_softcapping"};

}  // namespace

constinit const Family kMuseGlimmer{
    .name = "muse-glimmer",
    .set_published = set_published_muse,
    .hf_class = "",
    .hf_model_type = "muse_glimmer_text",
    .hf_outer_class = "MuseGlimmerForConditionalGeneration",
    .hf_defaults =
        {.context_tokens = 131072, .n_kv_heads = 2, .head_dim = 128, .rms_eps = 1e-5, .n_q_heads = 32, .vocab = 202048},
    .hf_names = with_gate(tensor_names::with_post_norms(tensor_names::hugging_face())),
    .read_hf = read_muse,
    .gguf_name = "muse-glimmer",
    .gguf_rope_layout = RopeLayout::Interleaved,
    .gguf_keys = kLogitKeys,
    .gguf_names = with_gate(tensor_names::with_head_norms(tensor_names::with_post_norms(tensor_names::gguf()))),
    .gguf_biases = gguf_rules(),
    .read_gguf = read_muse_gguf,
};

}  // namespace slipstream
