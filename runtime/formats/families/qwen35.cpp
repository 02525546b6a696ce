// Qwen3.5, 3.6 and 3.8, text, dense and with experts, and Qwen3-Next (transformers: models/qwen3_5, qwen3_5_moe,
// qwen3_next; llama.cpp: src/models/qwen35.cpp, qwen3next.cpp, conversion/qwen.py). Three of four layers are gated
// delta nets; the others have attention whose query matrix has the rows of an output gate, too, and rotate a quarter of
// each head. Norms multiply by 1 + weight in Hugging Face directories, except that of the delta nets, which multiplies
// by its weight in both formats. Beside the experts, a shared expert whose result a gate multiplies.
//
// Files of Qwen3-Next have matrices of a delta net together, with the rows of a key head and of its value heads next to
// each other.
//
// The layer that proposes further tokens ("mtp.", in GGUF files the last one) is read by proposing_head.h, for
// drafting. Not used: the vision model. Positions of images (mrope_section) are those of the text where there are none.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Of this many layers, the last one has attention.
constexpr std::int64_t kInterval = 4;
constexpr double kRotatedShare = 0.25;

// Gives a delta net to the layers without attention, and to the others queries with a gate.
void set_layers(ModelConfig& config, const DeltaNetConfig& delta_net, const std::vector<bool>& is_recurrent) {
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        if (is_recurrent[i])
            config.layers[i].mixer = delta_net;
        else
            config.layers[i].attention().gate_in_queries = true;
    }
}

std::vector<bool> periodic(std::int64_t n_layers, std::int64_t interval) {
    std::vector<bool> is_recurrent;
    for (std::int64_t i = 0; i < n_layers; ++i) is_recurrent.push_back((i + 1) % interval != 0);
    return is_recurrent;
}

std::vector<bool> recurrent_layers(const JsonFields& fields, std::int64_t n_layers) {
    if (fields.find("layer_types") == nullptr) {
        const std::int64_t interval = fields.integer("full_attention_interval").value_or(kInterval);
        if (interval < 1) fields.fail("full_attention_interval", fmt::format("is {}", interval));
        return periodic(n_layers, interval);
    }
    std::vector<bool> is_recurrent;
    for (const std::string& text : read_layer_types(fields, n_layers)) {
        if (text != "linear_attention" && text != "full_attention")
            throw Unsupported(
                fmt::format("{}: layer type \"{}\" is not served (served: linear_attention, full_attention)",
                            fields.name(), printable(text)));
        is_recurrent.push_back(text == "linear_attention");
    }
    return is_recurrent;
}

// Reads all but the experts. `fused`: the matrices of a delta net's inputs and gate are one, so are those of its rates.
void read_layers(const JsonFields& fields, bool fused, ModelConfig& config) {
    if (fields.boolean("attention_bias").value_or(false))
        throw Unsupported(fmt::format("{}: attention_bias is not served for {}", fields.name(), config.family));
    if (!fields.boolean("attn_output_gate").value_or(true))
        throw Unsupported(fmt::format("{}: attention without an output gate (attn_output_gate) is not served for {}",
                                      fields.name(), config.family));
    const std::string gate = fields.string("output_gate_type").value_or("silu");
    // "swish" is another name of silu.
    if (gate != "silu" && gate != "swish")
        throw Unsupported(
            fmt::format("{}: output_gate_type \"{}\" is not served (served: silu)", fields.name(), printable(gate)));
    const DeltaNetConfig delta_net{.shape = {.n_key_heads = fields.integer("linear_num_key_heads").value_or(16),
                                             .n_value_heads = fields.integer("linear_num_value_heads").value_or(32),
                                             .key_dim = fields.integer("linear_key_head_dim").value_or(128),
                                             .value_dim = fields.integer("linear_value_head_dim").value_or(128),
                                             .conv_width = fields.integer("linear_conv_kernel_dim").value_or(4)},
                                   .log_decay = true,
                                   .gate_in_inputs = fused,
                                   .decay_in_beta = fused};
    set_layers(config, delta_net, recurrent_layers(fields, config.n_layers()));
    config.norm_offset = 1.0F;
}

void read_qwen35(const JsonFields& fields, HfConfig& result) {
    read_layers(fields, false, result.model);
}

// Gives experts, and the shared one beside them, to layers; `is_dense` [n_layers]: not to these.
void set_experts(ModelConfig& config, const ExpertsConfig& experts, std::int64_t shared_d_ff,
                 const std::vector<bool>& is_dense = {}) {
    if (shared_d_ff < 1 || shared_d_ff > 1 << 22)
        throw FormatError(fmt::format("a shared expert of width {}", shared_d_ff));
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        if (!is_dense.empty() && is_dense[i]) continue;
        config.layers[i].feed_forward.experts = experts;
        config.layers[i].feed_forward.d_ff = shared_d_ff;
    }
}

void read_qwen35_moe(const JsonFields& fields, HfConfig& result) {
    read_layers(fields, false, result.model);
    set_experts(result.model,
                read_hf_experts(fields, {.count = "num_experts",
                                         .other_count = "num_local_experts",
                                         .d_ff = "moe_intermediate_size",
                                         .absent_count = 256,
                                         .absent_chosen = 8,
                                         .absent_d_ff = 512}),
                fields.integer("shared_expert_intermediate_size").value_or(512));
}

void read_qwen3_next(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    read_layers(fields, true, config);
    ExpertsConfig experts = read_hf_experts(fields, {.count = "num_experts",
                                                     .other_count = "num_local_experts",
                                                     .d_ff = "moe_intermediate_size",
                                                     .absent_count = 512,
                                                     .absent_chosen = 10,
                                                     .absent_d_ff = 512});
    experts.weighting.normalized = fields.boolean("norm_topk_prob").value_or(true);
    set_experts(config, experts, fields.integer("shared_expert_intermediate_size").value_or(512),
                read_dense_layers(fields, config.n_layers()));
}

// Returns which of the first config.n_layers() layers have a delta net. `n_in_file`: with those that propose tokens.
std::vector<bool> recurrent_layers(const GgufKeys& keys, std::int64_t n_layers, std::int64_t n_in_file) {
    if (keys.find("attention.recurrent_layers") == nullptr) {
        const std::int64_t interval = keys.integer("full_attention_interval").value_or(kInterval);
        if (interval < 1)
            throw FormatError(
                fmt::format("{}: {} is {}", keys.file().name(), keys.key("full_attention_interval"), interval));
        return periodic(n_layers, interval);
    }
    const auto flags = keys.by_layer("attention.recurrent_layers", n_in_file);
    std::vector<bool> is_recurrent;
    for (std::int64_t i = 0; i < n_layers; ++i) is_recurrent.push_back((*flags)[i] != 0);
    return is_recurrent;
}

// `tiled`: the converter orders value heads so that head h uses key head h mod (number of key heads).
void read_delta_nets(const GgufKeys& keys, bool tiled, ModelConfig& config) {
    const std::int64_t n_in_file = config.n_layers();
    drop_proposing_layers(keys, config);
    DeltaNetShape shape{.n_key_heads = keys.required("ssm.group_count"),
                        .n_value_heads = keys.required("ssm.time_step_rank"),
                        .key_dim = keys.required("ssm.state_size"),
                        .conv_width = keys.required("ssm.conv_kernel")};
    const std::int64_t inner = keys.required("ssm.inner_size");
    if (shape.n_value_heads < 1 || inner % shape.n_value_heads != 0)
        throw FormatError(fmt::format("{}: {} = {} does not divide among {} = {} value heads", keys.file().name(),
                                      keys.key("ssm.inner_size"), inner, keys.key("ssm.time_step_rank"),
                                      shape.n_value_heads));
    shape.value_dim = inner / shape.n_value_heads;
    shape.tiled = tiled && shape.n_key_heads != shape.n_value_heads;
    set_layers(config, {.shape = shape}, recurrent_layers(keys, config.n_layers(), n_in_file));
}

void read_qwen35_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_delta_nets(keys, true, config);
}

void read_experts(const GgufKeys& keys, ModelConfig& config) {
    ExpertsConfig experts = read_gguf_experts(keys, GgufGating::Softmax, std::nullopt);
    experts.weighting.normalized = keys.file().boolean(keys.key("expert_weights_norm")).value_or(true);
    experts.weighting.scale = static_cast<float>(keys.number("expert_weights_scale").value_or(1.0));
    set_experts(config, experts, keys.integer("expert_shared_feed_forward_length").value_or(experts.d_ff));
}

void read_qwen35_moe_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_delta_nets(keys, true, config);
    read_experts(keys, config);
}

void read_qwen3_next_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_delta_nets(keys, false, config);
    for (std::int64_t i = 0; i < config.n_layers(); ++i) {
        if (config.layers[i].has_attention()) continue;
        auto& delta_net = std::get<DeltaNetConfig>(config.layers[i].mixer);
        delta_net.decay_in_beta = true;
        // No key says so. Newer files have the gate apart.
        delta_net.gate_in_inputs =
            keys.tensors().find(fmt::format("blk.{}.{}", i, kQwen3Next.gguf_names.delta_in_with_gate)) != nullptr;
    }
    read_experts(keys, config);
}

void set_qwen35(ModelConfig& config, std::int64_t /*window*/) {
    for (LayerConfig& layer : config.layers) layer.attention().gate_in_queries = true;
    config.ropes = {{.theta = 1e7, .n_rotated = config.attention(0).head_dim / 4}};
}

constexpr TensorNames hf_names() {
    using enum TensorRole;
    TensorNames names = tensor_names::with_head_norms(tensor_names::hugging_face());
    names[DeltaIn] = "linear_attn.in_proj_qkv.weight";
    names[DeltaGate] = "linear_attn.in_proj_z.weight";
    names[DeltaDecayIn] = "linear_attn.in_proj_a.weight";
    names[DeltaBeta] = "linear_attn.in_proj_b.weight";
    names[DeltaConv] = "linear_attn.conv1d.weight";
    names[DeltaDecay] = "linear_attn.A_log";
    names[DeltaDecayBias] = "linear_attn.dt_bias";
    names[DeltaNorm] = "linear_attn.norm.weight";
    names[DeltaOut] = "linear_attn.out_proj.weight";
    return names;
}

constexpr TensorNames gguf_names() {
    using enum TensorRole;
    TensorNames names = tensor_names::with_head_norms(tensor_names::gguf());
    names[FfnNorm] = "post_attention_norm.weight";
    names[DeltaIn] = "attn_qkv.weight";
    names[DeltaGate] = "attn_gate.weight";
    names[DeltaDecayIn] = "ssm_alpha.weight";
    names[DeltaBeta] = "ssm_beta.weight";
    names[DeltaConv] = "ssm_conv1d.weight";
    names[DeltaDecay] = "ssm_a";
    names[DeltaDecayBias] = "ssm_dt.bias";
    names[DeltaNorm] = "ssm_norm.weight";
    names[DeltaOut] = "ssm_out.weight";
    return names;
}

constexpr TensorNames with_gated_experts(TensorNames names) {
    names = tensor_names::with_experts(names);
    const bool gguf = names.layer_prefix == "blk.";
    if (gguf) {
        names = tensor_names::with_shared_expert(names);
    } else {
        names.experts_gate_up = "mlp.experts.gate_up_proj";
        names.experts[expert_tensor(TensorRole::Down)].stacked = "mlp.experts.down_proj";
        names.shared_expert = {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight",
                               "mlp.shared_expert.down_proj.weight"};
    }
    names[TensorRole::SharedGate] = gguf ? "ffn_gate_inp_shexp.weight" : "mlp.shared_expert_gate.weight";
    return names;
}

constexpr TensorNames hf_next_names() {
    TensorNames names = with_gated_experts(hf_names());
    names[TensorRole::DeltaIn] = {};
    names[TensorRole::DeltaGate] = {};
    names[TensorRole::DeltaDecayIn] = {};
    names.delta_in_with_gate = "linear_attn.in_proj_qkvz.weight";
    names[TensorRole::DeltaBeta] = "linear_attn.in_proj_ba.weight";
    return names;
}

// Older files have the rows of inputs and gate in one tensor.
constexpr TensorNames gguf_next_names() {
    TensorNames names = with_gated_experts(gguf_names());
    names.delta_in_with_gate = "ssm_in.weight";
    names[TensorRole::DeltaDecayIn] = {};
    names[TensorRole::DeltaBeta] = "ssm_ba.weight";
    return names;
}

constexpr HfDefaults defaults(std::int64_t n_kv_heads, std::int64_t vocab) {
    return {.context_tokens = 32768,
            .n_kv_heads = n_kv_heads,
            .head_dim = 256,
            .n_q_heads = 16,
            .vocab = vocab,
            .rotated_share = kRotatedShare};
}

constexpr BindingRules kNoBiases{.qkv_bias = BiasRule::Forbidden, .out_bias = BiasRule::Forbidden};

}  // namespace

constinit const Family kQwen35{
    .name = "qwen35",
    .head = HeadNaming::Apart,
    .set_published = set_qwen35,
    .hf_class = "Qwen3_5ForCausalLM",
    .hf_model_type = "qwen3_5_text",
    .hf_outer_class = "Qwen3_5ForConditionalGeneration",
    .hf_defaults = defaults(4, 248320),
    .hf_names = hf_names(),
    .read_hf = read_qwen35,
    .gguf_name = "qwen35",
    .gguf_names = gguf_names(),
    .gguf_biases = kNoBiases,
    .read_gguf = read_qwen35_gguf,
};

constinit const Family kQwen35Moe{
    .name = "qwen35moe",
    .head = HeadNaming::Apart,
    .set_published = set_qwen35,
    .hf_class = "Qwen3_5MoeForCausalLM",
    .hf_model_type = "qwen3_5_moe_text",
    .hf_outer_class = "Qwen3_5MoeForConditionalGeneration",
    .hf_defaults = defaults(2, 248320),
    .hf_names = with_gated_experts(hf_names()),
    .hf_has_experts = true,
    .read_hf = read_qwen35_moe,
    .gguf_name = "qwen35moe",
    .gguf_keys = kExpertKeys,
    .gguf_names = with_gated_experts(gguf_names()),
    .gguf_biases = kNoBiases,
    .read_gguf = read_qwen35_moe_gguf,
};

constinit const Family kQwen3Next{
    .name = "qwen3next",
    .head = HeadNaming::Apart,
    .set_published = set_qwen35,
    .hf_class = "Qwen3NextForCausalLM",
    .hf_model_type = "qwen3_next",
    .hf_defaults = defaults(2, 151936),
    .hf_names = hf_next_names(),
    .hf_has_experts = true,
    .read_hf = read_qwen3_next,
    .gguf_name = "qwen3next",
    .gguf_keys = kExpertKeys,
    .gguf_names = gguf_next_names(),
    .gguf_biases = kNoBiases,
    .read_gguf = read_qwen3_next_gguf,
};

}  // namespace slipstream
