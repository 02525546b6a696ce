// gpt-oss, 20b and 120b (transformers: models/gpt_oss; llama.cpp: src/models/openai-moe.cpp, conversion/gpt_oss.py).
// Each query head has a sink in its softmax; every second layer from the first has a window; all matrices but the head
// have biases; experts have a clamped activation; a softmax over the chosen experts gives their weights.
//
// The bounds of yarn are not rounded ("truncate" is false). GGUF files have no key for that, and llama.cpp rounds them:
// its logits differ.
#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

constexpr std::int64_t kPeriod = 2;  // layers of a period; the last of them has no window
constexpr std::int64_t kWindow = 128;
constexpr double kLimit = 7.0;    // of activations
constexpr double kAlpha = 1.702;  // GatedActivation::ClampedSilu
constexpr double kTheta = 150000.0;

void set_layers(ModelConfig& config, ExpertsConfig experts, double limit) {
    experts.weighting.normalized = true;
    for (LayerConfig& layer : config.layers)
        layer.feed_forward = {.d_ff = 0,
                              .activation = GatedActivation::ClampedSilu,
                              .activation_limit = static_cast<float>(limit),
                              .experts = experts};
}

constexpr RopeScaling published_scaling() {
    return {.kind = RopeScalingKind::Yarn, .factor = 32.0, .original_context = 4096, .rounds_bounds = false};
}

void read_gpt_oss(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    if (const auto alpha = fields.number("swiglu_alpha"); alpha && *alpha != kAlpha)
        throw Unsupported(
            fmt::format("{}: swiglu_alpha = {} is not served (served: {})", fields.name(), *alpha, kAlpha));
    const ExpertsConfig experts = read_hf_experts(fields, {.count = "num_local_experts",
                                                           .d_ff = "intermediate_size",
                                                           .absent_count = 128,
                                                           .absent_chosen = 4,
                                                           .absent_d_ff = 2880});
    set_layers(config, experts, fields.number("swiglu_limit").value_or(kLimit));
    const auto window = fields.has("sliding_window") ? fields.integer("sliding_window") : kWindow;
    if (fields.find("layer_types") != nullptr) {
        set_windows_by_type(fields, window, config);
    } else {
        set_windows(fields, window, config);
        set_periodic_windows(config, window.value_or(0), kPeriod);
    }
    if (fields.find("rope_parameters") == nullptr && fields.find("rope_scaling") == nullptr)
        config.ropes.front().scaling = published_scaling();
    const BiasRule biases = fields.boolean("attention_bias").value_or(true) ? BiasRule::Required : BiasRule::Forbidden;
    result.biases = {.qkv_bias = biases, .out_bias = biases};
}

void read_gpt_oss_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_gguf_windows(keys, kPeriod, config);
    if (keys.required("attention.sliding_window") < 1)
        throw FormatError(fmt::format("{}: {} is {}", keys.file().name(), keys.key("attention.sliding_window"),
                                      keys.required("attention.sliding_window")));
    const auto d_ff = keys.uniform("feed_forward_length", config.n_layers());
    set_layers(config, read_gguf_experts(keys, GgufGating::SoftmaxOfChosen, d_ff), kLimit);
    for (RopeConfig& rope : config.ropes) rope.scaling.rounds_bounds = false;
}

// Sets what the published models compute.
void set_gpt_oss(ModelConfig& config, std::int64_t window) {
    set_periodic_windows(config, window, kPeriod);
    set_layers(config, config.layers.front().feed_forward.experts, kLimit);
    RopeConfig& rope = config.ropes.front();
    rope.theta = kTheta;
    rope.scaling = published_scaling();
}

constexpr TensorNames names(TensorNames names, bool gguf) {
    using enum TensorRole;
    names[Sinks] = gguf ? "attn_sinks.weight" : "self_attn.sinks";
    names[Router] = gguf ? "ffn_gate_inp.weight" : "mlp.router.weight";
    names[RouterBias] = gguf ? "ffn_gate_inp.bias" : "mlp.router.bias";
    names[GateBias] = gguf ? "ffn_gate_exps.bias" : "";
    names[UpBias] = gguf ? "ffn_up_exps.bias" : "";
    names[DownBias] = gguf ? "ffn_down_exps.bias" : "mlp.experts.down_proj_bias";
    if (gguf)
        names[FfnNorm] = "post_attention_norm.weight";
    else
        names.fused_experts = {.gate_up = "mlp.experts.gate_up_proj",
                               .gate_up_bias = "mlp.experts.gate_up_proj_bias",
                               .down = "mlp.experts.down_proj"};
    return names;
}

}  // namespace

constinit const Family kGptOss{
    .name = "gpt-oss",
    .set_published = set_gpt_oss,
    .hf_class = "GptOssForCausalLM",
    .hf_model_type = "gpt_oss",
    .hf_defaults = {.context_tokens = 131072,
                    .n_kv_heads = 8,
                    .head_dim = 64,
                    .rms_eps = 1e-5,
                    .n_q_heads = 64,
                    .vocab = 201088,
                    .rope_theta = kTheta},
    .hf_names = names(tensor_names::hugging_face(), false),
    .hf_quantisation = "mxfp4",
    .hf_has_experts = true,
    .read_hf = read_gpt_oss,
    .gguf_name = "gpt-oss",
    .gguf_keys = kExpertKeys,
    .gguf_names = names(tensor_names::with_experts(tensor_names::gguf()), true),
    .gguf_biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required},
    .read_gguf = read_gpt_oss_gguf,
};

}  // namespace slipstream
