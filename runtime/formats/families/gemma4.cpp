// Gemma 4, text: 12B, 31B and 26B-A4B (transformers: models/gemma4, models/gemma4_unified; llama.cpp:
// src/models/gemma4.cpp, conversion/gemma.py). The norms of Gemma 3 with plain weights in both formats; scores are not
// scaled; values are normed without weights; a scale for each layer's output. Windowed layers have heads of their own
// size and number. Layers without a window rotate the first quarter of the pairs by the frequencies of the whole head,
// and may have no value matrix: their values are the keys before norm and rotation.
//
// 26B-A4B has experts beside the dense feed-forward in every layer. Each of the two reads the residual stream through a
// norm of its own and has a norm after it; the norm after the feed-forward takes their sum. The router's input is the
// residual stream, normed, times d_model^-0.5. A weight is the softmax over the chosen experts times a factor that the
// expert has.
//
// Not served: E2B and E4B (per-layer embeddings, layers that use the KV of earlier ones).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/families/gemma.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_rope.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Layers of a period. The last layer of each period, and of the model, has no window.
constexpr std::int64_t kPeriod = 6;
// Theta of the RoPE of layers without a window.
constexpr double kFullTheta = 1e6;
// Theta of the RoPE of windowed layers.
constexpr double kWindowTheta = 1e4;
// Fraction of a head's pairs that RoPE rotates in layers without a window.
constexpr double kRotatedShare = 0.25;
constexpr std::int64_t kFullHeadDim = 512;

// Sets what all layers compute. Windows must be set: windowed layers use RoPE 1, the others RoPE 0.
void set_common(ModelConfig& config, std::optional<DType> dtype = std::nullopt) {
    set_gemma_common(config, dtype);
    for (LayerConfig& layer : config.layers) {
        layer.attention().scale_dim = 1.0;
        layer.attention().norms_values = true;
        layer.attention().rope = layer.attention().window > 0 ? 1 : 0;
    }
}

// Gives all layers experts beside the dense feed-forward.
void set_experts(ModelConfig& config, ExpertsConfig experts) {
    experts.router_norm_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d_model)));
    for (LayerConfig& layer : config.layers) layer.feed_forward.experts = experts;
}

// Throws FormatError if layers have no dense feed-forward.
void check_dense_part(const ModelConfig& config, std::string_view field) {
    if (config.layers.front().feed_forward.d_ff < 1) throw FormatError(fmt::format("{} is missing, or below 1", field));
}

RopeConfig proportional(double theta, std::int64_t head_dim, double rotated_share) {
    return {
        .theta = theta,
        .n_rotated = head_dim,
        .n_fixed_pairs = head_dim / 2 - static_cast<std::int64_t>(static_cast<double>(head_dim) * rotated_share / 2.0)};
}

// Heads of the layers without a window.
struct FullHeads {
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
    friend bool operator==(const FullHeads&, const FullHeads&) = default;
};

// Returns the heads of a layer; `absent`: those if the file does not change them. transformers 5 writes
// "per_layer_config", an object that has for the number of a layer an object of changed fields, in place of
// "global_head_dim" and "num_global_key_value_heads".
FullHeads read_layer_heads(const JsonFields& layers, std::int64_t layer, const FullHeads& absent) {
    // Layer numbers of one digit may have a leading 0.
    const auto* own = layers.object(std::to_string(layer).c_str());
    if (own == nullptr) own = layers.object(fmt::format("{:02}", layer).c_str());
    if (own == nullptr) return absent;
    const JsonFields fields(*own, layers.name());
    for (const std::string& key : fields.keys())
        if (key != "head_dim" && key != "num_key_value_heads")
            fields.fail("per_layer_config", fmt::format("changes {}, which is not served", key));
    return {fields.integer("num_key_value_heads").value_or(absent.n_kv_heads),
            fields.integer("head_dim").value_or(absent.head_dim)};
}

void set_heads(const JsonFields& fields, ModelConfig& config) {
    const AttentionConfig all = config.attention(0);
    const bool from_keys = fields.boolean("attention_k_eq_v").value_or(false);
    FullHeads full{all.n_kv_heads, fields.integer("global_head_dim").value_or(kFullHeadDim)};
    // Without "attention_k_eq_v", transformers ignores "num_global_key_value_heads".
    if (from_keys) full.n_kv_heads = fields.integer("num_global_key_value_heads").value_or(full.n_kv_heads);
    const FullHeads windowed{all.n_kv_heads, all.head_dim};
    const auto* per_layer = fields.object("per_layer_config");
    std::optional<FullHeads> found;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        AttentionConfig& attention = config.layers[layer].attention();
        const bool is_full = attention.window == 0;
        FullHeads heads = is_full ? full : windowed;
        if (per_layer != nullptr) heads = read_layer_heads(JsonFields(*per_layer, fields.name()), layer, windowed);
        if (!is_full && heads != windowed) fields.fail("per_layer_config", "changes the heads of a windowed layer");
        if (is_full && found.value_or(heads) != heads)
            fields.fail("per_layer_config", "gives layers without a window different heads");
        if (is_full) found = heads;
        attention.n_kv_heads = heads.n_kv_heads;
        attention.head_dim = heads.head_dim;
        attention.values_from_keys = is_full && from_keys;
    }
}

RopeConfig read_rope(const JsonFields& fields, const HfConfig& result, const HfDefaults& defaults, const char* type,
                     std::int64_t head_dim) {
    const auto* parameters = fields.object("rope_parameters");
    if (parameters == nullptr)
        return type == std::string_view("full_attention") ? proportional(kFullTheta, head_dim, kRotatedShare)
                                                          : RopeConfig{.theta = kWindowTheta, .n_rotated = head_dim};
    const auto* of_type = JsonFields(*parameters, fields.name()).object(type);
    if (of_type == nullptr) fields.fail("rope_parameters", fmt::format("has no {}", type));
    RopeConfig rope = read_hf_rope(fields, defaults, result.model.context_tokens, head_dim, type);
    // In transformers, the plain RoPE of this family ignores "partial_rotary_factor".
    if (rope.scaling.kind == RopeScalingKind::None && rope.n_fixed_pairs == 0) rope.n_rotated = head_dim;
    return rope;
}

void read_layers(const JsonFields& fields, HfConfig& result, const HfDefaults& defaults, std::int64_t absent_window,
                 std::int64_t absent_per_layer_input) {
    const auto refuse = [&](std::string_view what) {
        throw Unsupported(fmt::format("{}: {} not served", fields.name(), what));
    };
    if (fields.integer("hidden_size_per_layer_input")
            .value_or(fields.has("hidden_size_per_layer_input") ? 0 : absent_per_layer_input) > 0)
        refuse("per-layer embeddings (Gemma 4 E2B and E4B) are");
    if (fields.integer("num_kv_shared_layers").value_or(0) > 0)
        refuse("layers that use the KV of earlier ones (Gemma 4 E2B and E4B) are");
    if (fields.string("use_bidirectional_attention").value_or("") == "all") refuse("attention that is not causal is");
    if (!JsonFields(fields.object("rope_scaling"), fields.name()).keys().empty())
        refuse("rope_scaling in a configuration of Gemma 4 (use rope_parameters) is");
    ModelConfig& config = result.model;
    check_dense_part(config, "intermediate_size");
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
    const std::int64_t window = fields.integer("sliding_window").value_or(absent_window);
    if (fields.find("layer_types") != nullptr) {
        set_windows_by_type(fields, window, config);
    } else {
        set_windows(fields, window, config);  // throws if the window is not positive
        set_periodic_windows(config, window, kPeriod);
    }
    config.layers.back().attention().window = 0;  // whatever the fields say, as in transformers
    const std::int64_t head_dim = config.attention(0).head_dim;
    set_heads(fields, config);
    config.ropes = {read_rope(fields, result, defaults, "full_attention", config.layers.back().attention().head_dim),
                    read_rope(fields, result, defaults, "sliding_attention", head_dim)};
    set_common(config, result.dtype);
    const double cap = fields.number("final_logit_softcapping").value_or(0.0);
    check_softcap("logits", cap);
    config.logit_softcap = static_cast<float>(cap);
}

void read_gemma4(const JsonFields& fields, HfConfig& result) {
    // Without this flag, transformers ignores the numbers of experts.
    if (fields.boolean("enable_moe_block").value_or(false))
        set_experts(result.model,
                    read_hf_experts(
                        fields, {.count = "num_experts", .chosen = "top_k_experts", .d_ff = "moe_intermediate_size"}));
    // 256 is the default of the configuration class: a file without the field has per-layer embeddings, and is refused.
    read_layers(fields, result, kGemma4.hf_defaults, 512, 256);
}
void read_gemma4_unified(const JsonFields& fields, HfConfig& result) {
    if (fields.boolean("enable_moe_block").value_or(false))
        throw Unsupported(
            fmt::format("{}: a mixture of experts is not served for {}", fields.name(), kGemma4Unified.hf_model_type));
    read_layers(fields, result, kGemma4Unified.hf_defaults, 1024, 0);
}

// Returns how many pairs never rotate. The converter writes to "rope_freqs.weight" 1 for each pair that rotates, then
// 1e30 for the others.
std::int64_t fixed_pairs(const GgufKeys& keys, const std::vector<double>& divisors, std::int64_t head_dim) {
    // Least divisor that counts as 1e30. An angle that is divided by it has no effect in float.
    constexpr double kFixed = 1e20;
    const auto first_fixed = std::ranges::find_if(divisors, [](double divisor) { return divisor != 1.0; });
    const bool others_are_fixed =
        std::all_of(first_fixed, divisors.end(), [](double divisor) { return divisor >= kFixed; });
    if (std::ssize(divisors) != head_dim / 2 || !others_are_fixed)
        throw Unsupported(fmt::format("{}: tensor rope_freqs.weight is served with {} divisors, first 1, then 1e30",
                                      keys.file().name(), head_dim / 2));
    return divisors.end() - first_fixed;
}

// Returns whether a layer has no value matrix. No key says so, therefore the tensors are examined.
bool has_no_values(const GgufKeys& keys, std::int64_t layer, const AttentionConfig& attention) {
    if (const FileTensor* fused = keys.tensors().find(fmt::format("blk.{}.attn_qkv.weight", layer))) {
        // Limits the sizes that are multiplied below: they are validated only later, and the products must not
        // overflow.
        constexpr std::int64_t kMost = 1 << 20;
        if (std::max({attention.n_q_heads, attention.n_kv_heads, attention.head_dim}) > kMost) return false;
        return !fused->shape.empty() && fused->shape[0] == attention.q_cols() + attention.kv_cols();
    }
    return keys.tensors().find(fmt::format("blk.{}.attn_v.weight", layer)) == nullptr;
}

void read_gemma4_gguf(const GgufKeys& keys, ModelConfig& config) {
    if (keys.find("attention.sliding_window_pattern") == nullptr)
        throw FormatError(fmt::format("{}: metadata {} is missing", keys.file().name(),
                                      keys.key("attention.sliding_window_pattern")));
    if (keys.required("attention.sliding_window") < 1)
        throw FormatError(fmt::format("{}: {} is {}", keys.file().name(), keys.key("attention.sliding_window"),
                                      keys.required("attention.sliding_window")));
    read_gguf_windows(keys, kPeriod, config);
    if (keys.integer("expert_count").value_or(0) != 0)
        set_experts(config, read_gguf_experts(keys, GgufGating::Softmax, std::nullopt));
    check_dense_part(config, keys.key("feed_forward_length"));
    const std::int64_t head_dim = keys.required("attention.key_length_swa");
    if (keys.integer("attention.value_length_swa").value_or(head_dim) != head_dim)
        throw Unsupported(fmt::format("{}: {} and {} differ; only equal lengths are served", keys.file().name(),
                                      keys.key("attention.key_length_swa"), keys.key("attention.value_length_swa")));
    const auto n_kv_heads = keys.by_layer("attention.head_count_kv", config.n_layers());
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        AttentionConfig& attention = config.layers[layer].attention();
        if (n_kv_heads) attention.n_kv_heads = (*n_kv_heads)[layer];
        if (attention.window > 0) attention.head_dim = head_dim;
        attention.values_from_keys = has_no_values(keys, layer, attention);
    }
    RopeConfig& full = config.ropes.front();
    const std::vector<double> divisors = std::exchange(full.scaling.frequency_divisors, {});
    if (divisors.empty()) throw FormatError(fmt::format("{}: tensor rope_freqs.weight is missing", keys.file().name()));
    full.n_fixed_pairs = fixed_pairs(keys, divisors, full.n_rotated);
    if (full.scaling.kind == RopeScalingKind::Llama3) full.scaling.kind = RopeScalingKind::None;
    config.ropes.push_back({.theta = keys.number("rope.freq_base_swa").value_or(kWindowTheta),
                            .n_rotated = keys.integer("rope.dimension_count_swa").value_or(head_dim)});
    set_common(config);
    const double cap = keys.number("final_logit_softcapping").value_or(0.0);
    check_softcap("logits", cap);
    config.logit_softcap = static_cast<float>(cap);
}

// Sets what the published models compute. In layers without a window, the model with 32 query heads (31B) has 4 kv
// heads; of those with 16, the one with experts (26B-A4B) has 2, the other one (12B) 1.
void set_gemma4(ModelConfig& config, std::int64_t window) {
    if (config.has_experts()) set_experts(config, config.experts(0));
    const std::int64_t few_kv_heads = config.has_experts() ? 2 : 1;
    set_periodic_windows(config, window, kPeriod);
    config.layers.back().attention().window = 0;
    const std::int64_t head_dim = config.attention(0).head_dim;
    for (LayerConfig& layer : config.layers) {
        AttentionConfig& attention = layer.attention();
        if (attention.window > 0) continue;
        attention.n_kv_heads = attention.n_q_heads == 32 ? 4 : few_kv_heads;
        attention.head_dim = kFullHeadDim;
        attention.values_from_keys = true;
    }
    config.ropes = {proportional(kFullTheta, kFullHeadDim, kRotatedShare),
                    {.theta = kWindowTheta, .n_rotated = head_dim}};
    set_common(config);
    config.logit_softcap = 30.0F;
}

constexpr std::array<std::string_view, 3> kGgufKeys{"final_logit_softcapping", "attention.head_count_kv",
                                                    "expert_count"};

constexpr TensorNames names(TensorNames common) {
    using namespace tensor_names;
    return with_output_scale(with_head_norms(with_post_norms(common)));
}

constexpr TensorNames with_experts(TensorNames names) {
    using enum TensorRole;
    const bool gguf = names.layer_prefix == "blk.";
    names.shared_expert = {names[Gate], names[Up], names[Down]};
    if (gguf) {
        names = tensor_names::with_experts(names);
    } else {
        names.experts_gate_up = "experts.gate_up_proj";
        names.experts[expert_tensor(Down)].stacked = "experts.down_proj";
        names[Router] = "router.proj.weight";
    }
    names[RouterNorm] = gguf ? "ffn_gate_inp.scale" : "router.scale";
    names[ExpertScales] = gguf ? "ffn_down_exps.scale" : "router.per_expert_scale";
    names[ExpertsNorm] = gguf ? "pre_ffw_norm_2.weight" : "pre_feedforward_layernorm_2.weight";
    names[SharedPostNorm] = gguf ? "post_ffw_norm_1.weight" : "post_feedforward_layernorm_1.weight";
    names[ExpertsPostNorm] = gguf ? "post_ffw_norm_2.weight" : "post_feedforward_layernorm_2.weight";
    return names;
}

constexpr HfDefaults defaults(std::int64_t context_tokens) {
    return {.context_tokens = context_tokens,
            .n_kv_heads = 4,
            .head_dim = 256,
            .n_q_heads = 8,
            .vocab = 262144,
            .tied_embeddings = true,
            .activation = "gelu_pytorch_tanh",
            .rope_theta = kFullTheta,
            .rope_by_layer_type = true};
}

}  // namespace

constinit const Family kGemma4{
    .name = "gemma4",
    .set_published = set_gemma4,
    .hf_class = "Gemma4ForCausalLM",
    .hf_model_type = "gemma4_text",
    .hf_outer_class = "Gemma4ForConditionalGeneration",
    .hf_defaults = defaults(131072),
    .hf_names = with_experts(names(tensor_names::hugging_face())),
    .hf_has_experts = true,
    .read_hf = read_gemma4,
    .gguf_name = "gemma4",
    .gguf_keys = kGgufKeys,
    .gguf_names = with_experts(names(tensor_names::gguf())),
    .gguf_biases = {},
    .read_gguf = read_gemma4_gguf,
};

// The 12B model: the same text model in a directory with other fields. Its GGUF files have the architecture "gemma4".
constinit const Family kGemma4Unified{
    .name = "gemma4_unified",
    .hf_class = "Gemma4UnifiedForCausalLM",
    .hf_model_type = "gemma4_unified_text",
    .hf_outer_class = "Gemma4UnifiedForConditionalGeneration",
    .hf_defaults = defaults(262144),
    .hf_names = names(tensor_names::hugging_face()),
    .read_hf = read_gemma4_unified,
    .gguf_name = "",
    .gguf_names = {},
    .gguf_biases = {},
    .read_gguf = nullptr,
};

}  // namespace slipstream
