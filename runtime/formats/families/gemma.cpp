// Gemma 2 and 3, text (transformers: models/gemma2, models/gemma3; llama.cpp: src/models/gemma2.cpp, gemma3.cpp). Norms
// before and after each half of a layer, with weights 1 + w in Hugging Face directories (GGUF stores the sum);
// GELU-gated feed-forward; embedding scaled by sqrt(d_model); windows in most layers. Gemma 2 caps scores and logits.
// Gemma 3 norms heads and rotates windowed layers by another theta.
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/float16.h"
#include "runtime/formats/families/gemma.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Layers of a period in Gemma 2. The last layer of each period has no window, the others have one.
constexpr std::int64_t kGemma2Period = 2;
// Layers of a period in Gemma 3. The last layer of each period has no window, the others have one.
constexpr std::int64_t kGemma3Period = 6;
// Tokens of the window if a GGUF file does not say, as in transformers and llama.cpp.
constexpr std::int64_t kGemma2Window = 4096;
// Theta of the RoPE of windowed layers in Gemma 3, if the file does not say.
constexpr double kLocalTheta = 10000.0;

// Sets what Gemma 2 and 3 both compute in every layer.
void set_common(ModelConfig& config, double scale_dim, std::optional<DType> dtype = std::nullopt) {
    set_gemma_common(config, dtype);
    for (LayerConfig& layer : config.layers) layer.attention().scale_dim = scale_dim;
}

void set_softcaps(ModelConfig& config, double of_scores, double of_logits) {
    check_softcap("attention scores", of_scores);
    check_softcap("logits", of_logits);
    for (LayerConfig& layer : config.layers) layer.attention().softcap = static_cast<float>(of_scores);
    config.logit_softcap = static_cast<float>(of_logits);
}

float rounded(std::optional<DType> dtype, float value) {
    if (dtype == DType::BF16) return to_float(to_bfloat16(value));
    if (dtype == DType::F16) return to_float(to_half(value));
    return value;
}

void read_common(const JsonFields& fields, HfConfig& result, std::int64_t period) {
    ModelConfig& config = result.model;
    const double scale_dim = fields.number("query_pre_attn_scalar").value_or(256.0);
    if (!(scale_dim >= 1e-3 && scale_dim <= 1e6)) fields.fail("query_pre_attn_scalar", fmt::format("is {}", scale_dim));
    set_common(config, scale_dim, result.dtype);
    config.norm_offset = 1.0F;
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
    if (fields.boolean("use_bidirectional_attention").value_or(false))
        throw Unsupported(fields.name() + ": attention that is not causal is not served");
    const auto window = fields.has("sliding_window") ? fields.integer("sliding_window") : 4096;
    if (fields.find("layer_types") != nullptr) return set_windows_by_type(fields, window, config);
    period = fields.integer("sliding_window_pattern").value_or(period);
    if (period < 1) fields.fail("sliding_window_pattern", "is below 1");
    set_windows(fields, window, config);  // throws if the window is not positive
    if (window) set_periodic_windows(config, *window, period);
}

void read_gemma2(const JsonFields& fields, HfConfig& result) {
    read_common(fields, result, kGemma2Period);
    const auto cap = [&](const char* key, double absent) {
        return fields.has(key) ? fields.number(key).value_or(0.0) : absent;
    };
    set_softcaps(result.model, cap("attn_logit_softcapping", 50.0), cap("final_logit_softcapping", 30.0));
}

// Gives windowed layers the rotary embedding `local` in place of that of the model.
void set_local_rope(ModelConfig& config, const RopeConfig& local) {
    config.ropes.push_back(local);
    for (LayerConfig& layer : config.layers)
        if (layer.attention().window > 0) layer.attention().rope = config.ropes.size() - 1;
}

void read_gemma3(const JsonFields& fields, HfConfig& result) {
    read_common(fields, result, kGemma3Period);
    ModelConfig& config = result.model;
    set_softcaps(config, fields.number("attn_logit_softcapping").value_or(0.0),
                 fields.number("final_logit_softcapping").value_or(0.0));
    // In files of transformers 5, "rope_parameters" has an object for each type of layer. In older files,
    // "rope_scaling" holds for full attention, and windowed layers have only "rope_local_base_freq".
    double theta = fields.number("rope_local_base_freq").value_or(kLocalTheta);
    const auto* parameters = fields.object("rope_parameters");
    const auto* of_type =
        parameters != nullptr ? JsonFields(*parameters, fields.name()).object("sliding_attention") : nullptr;
    if (of_type != nullptr) {
        const JsonFields local(*of_type, fields.name());
        if (local.string("rope_type").value_or("default") != "default")
            fields.fail("rope_parameters", "scales the RoPE of windowed layers, which is not served");
        theta = local.number("rope_theta").value_or(theta);
    }
    set_local_rope(config, {.theta = theta, .n_rotated = config.attention(0).head_dim});
}

// Returns AttentionConfig::scale_dim (0: head_dim). GGUF does not store it: of the published models, only the two of
// 27B scale scores by another number than head_dim^-0.5, and the number of layers distinguishes them.
double scale_dim_of(const ModelConfig& config, std::int64_t layers_of_27b) {
    const std::int64_t n_q_heads = config.attention(0).n_q_heads;
    return config.n_layers() == layers_of_27b && n_q_heads > 0 ? static_cast<double>(config.d_model / n_q_heads) : 0.0;
}

void set_gemma2(ModelConfig& config, std::int64_t window) {
    set_common(config, scale_dim_of(config, 46));
    set_softcaps(config, 50.0, 30.0);
    set_periodic_windows(config, window, kGemma2Period);
}

void set_gemma3(ModelConfig& config, std::int64_t window) {
    set_common(config, scale_dim_of(config, 62));
    set_periodic_windows(config, window, kGemma3Period);
    set_local_rope(config, {.theta = kLocalTheta, .n_rotated = config.ropes.front().n_rotated});
}

void read_gemma2_gguf(const GgufKeys& keys, ModelConfig& config) {
    set_common(config, scale_dim_of(config, 46));
    set_softcaps(config, keys.number("attn_logit_softcapping").value_or(50.0),
                 keys.number("final_logit_softcapping").value_or(30.0));
    read_gguf_windows(keys, kGemma2Period, config, kGemma2Window);
}

void read_gemma3_gguf(const GgufKeys& keys, ModelConfig& config) {
    set_common(config, scale_dim_of(config, 62));
    set_softcaps(config, keys.number("attn_logit_softcapping").value_or(0.0),
                 keys.number("final_logit_softcapping").value_or(0.0));
    read_gguf_windows(keys, kGemma3Period, config);
    set_local_rope(config, {.theta = keys.number("rope.freq_base_swa").value_or(kLocalTheta),
                            .n_rotated = config.ropes.front().n_rotated});
}

constexpr std::array<std::string_view, 2> kSoftcapKeys{"attn_logit_softcapping", "final_logit_softcapping"};

}  // namespace

void set_gemma_common(ModelConfig& config, std::optional<DType> rounded_to) {
    const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config.d_model)));
    config.embedding_scale = rounded(rounded_to, scale);
    for (LayerConfig& layer : config.layers) layer.feed_forward.activation = GatedActivation::GeluTanh;
}

constinit const Family kGemma2{
    .name = "gemma2",
    .set_published = set_gemma2,
    .hf_class = "Gemma2ForCausalLM",
    .hf_model_type = "gemma2",
    .hf_defaults = {.context_tokens = 8192,
                    .n_kv_heads = 4,
                    .head_dim = 256,
                    .n_q_heads = 8,
                    .vocab = 256000,
                    .tied_embeddings = true,
                    .activation = "gelu_pytorch_tanh"},
    .hf_names = tensor_names::with_post_norms(tensor_names::hugging_face()),
    .read_hf = read_gemma2,
    .gguf_name = "gemma2",
    .gguf_keys = kSoftcapKeys,
    .gguf_names = tensor_names::with_post_norms(tensor_names::gguf()),
    .gguf_biases = {},
    .read_gguf = read_gemma2_gguf,
};

constinit const Family kGemma3{
    .name = "gemma3",
    .set_published = set_gemma3,
    .hf_class = "Gemma3ForCausalLM",
    .hf_model_type = "gemma3_text",
    .hf_outer_class = "Gemma3ForConditionalGeneration",
    .hf_defaults = {.context_tokens = 131072,
                    .n_kv_heads = 4,
                    .head_dim = 256,
                    .n_q_heads = 8,
                    .vocab = 262208,
                    .tied_embeddings = true,
                    .activation = "gelu_pytorch_tanh",
                    .rope_theta = 1e6,
                    .rope_by_layer_type = true},
    .hf_names = tensor_names::with_head_norms(tensor_names::with_post_norms(tensor_names::hugging_face())),
    .read_hf = read_gemma3,
    .gguf_name = "gemma3",
    .gguf_keys = kSoftcapKeys,
    .gguf_names = tensor_names::with_head_norms(tensor_names::with_post_norms(tensor_names::gguf())),
    .gguf_biases = {},
    .read_gguf = read_gemma3_gguf,
};

}  // namespace slipstream
