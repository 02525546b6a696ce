#include "runtime/formats/weight_binding.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/error.h"
#include "runtime/formats/gguf_types.h"

namespace slipstream {

namespace {

constexpr std::array<std::string_view, 5> kHfForeignInLayer{"mlp.gate_proj.bias", "mlp.up_proj.bias",
                                                            "mlp.down_proj.bias", "mlp.gate.weight", "self_attn.sinks"};
constexpr std::array<std::string_view, 2> kHfForeignOutside{"lm_head.bias", "model.norm.bias"};
constexpr std::array<std::string_view, 9> kGgufForeignInLayer{
    "ffn_gate.bias",       "ffn_up.bias",       "ffn_down.bias",       "attn_norm.bias",
    "ffn_norm.bias",       "attn_sinks.weight", "ffn_gate_inp.weight", "post_attention_norm.weight",
    "post_ffw_norm.weight"};
constexpr std::array<std::string_view, 2> kGgufForeignOutside{"output.bias", "output_norm.bias"};

constexpr WeightNames kHuggingFace{
    .embedding = "model.embed_tokens",
    .output_norm = "model.norm",
    .lm_head = "lm_head",
    .layer_prefix = "model.layers.",
    .attn_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .qkv = "self_attn.qkv_proj",
    .attn_out = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .ffn_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .gate_up = "mlp.gate_up_proj",
    .down = "mlp.down_proj",
    .foreign_in_layer = kHfForeignInLayer,
    .foreign_outside = kHfForeignOutside,
};

// In GGUF, a fused gate and up has the name of up alone (phi3: 2 * d_ff rows, the gate first).
constexpr WeightNames kGguf{
    .embedding = "token_embd",
    .output_norm = "output_norm",
    .lm_head = "output",
    .layer_prefix = "blk.",
    .attn_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .qkv = "attn_qkv",
    .attn_out = "attn_output",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .ffn_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .gate_up = "ffn_up",
    .down = "ffn_down",
    .foreign_in_layer = kGgufForeignInLayer,
    .foreign_outside = kGgufForeignOutside,
};

// Returns elements [begin, begin + count) of a vector.
ConstTensorView slice_vector(ConstTensorView vector, std::int64_t begin, std::int64_t count) {
    return vector_view(vector.data + row_bytes(vector.dtype, begin), vector.dtype, count);
}

class Binder {
public:
    Binder(const ModelConfig& config, const TensorIndex& tensors, const WeightNames& names, const BindingRules& rules)
        : config_(config), tensors_(tensors), names_(names), rules_(rules) {}

    ModelWeights run() const {
        ModelWeights weights;
        weights.token_embedding = matrix(fmt::format("{}.weight", names_.embedding), config_.vocab, config_.d_model);
        weights.output_norm = vector(fmt::format("{}.weight", names_.output_norm), config_.d_model);
        weights.lm_head = config_.tied_embeddings
                              ? weights.token_embedding
                              : matrix(fmt::format("{}.weight", names_.lm_head), config_.vocab, config_.d_model);
        for (const std::string_view foreign : names_.foreign_outside) refuse(std::string(foreign));
        weights.layers.reserve(config_.n_layers);
        for (std::int64_t i = 0; i < config_.n_layers; ++i) weights.layers.push_back(layer(i));
        return weights;
    }

private:
    [[nodiscard]] const FileTensor& find(const std::string& name, const std::vector<std::int64_t>& shape) const {
        const FileTensor* tensor = tensors_.find(name);
        if (tensor == nullptr) throw FormatError(fmt::format("tensor {} {} is missing", name, shape_text(shape)));
        if (tensor->shape != shape)
            throw FormatError(fmt::format("tensor {} has shape {}, the configuration asks for {}", name,
                                          shape_text(tensor->shape), shape_text(shape)));
        if (tensor->view.empty())
            throw Unsupported(fmt::format("tensor {} has type {}, which is not served (served: {})", name,
                                          tensor->type_name, served_type_names()));
        return *tensor;
    }

    [[nodiscard]] ConstTensorView matrix(const std::string& name, std::int64_t rows, std::int64_t cols) const {
        return find(name, {rows, cols}).view;
    }

    // Returns a norm or a bias, which must not be quantised.
    [[nodiscard]] ConstTensorView vector(const std::string& name, std::int64_t length) const {
        const ConstTensorView view = find(name, {length}).view;
        if (is_quantized(view.dtype))
            throw Unsupported(fmt::format("tensor {} has type {}; norms and biases are served in F32, F16 and BF16",
                                          name, dtype_name(view.dtype)));
        return view;
    }

    [[nodiscard]] bool has(const std::string& name) const { return tensors_.find(name) != nullptr; }

    void refuse(const std::string& name) const {
        if (has(name)) throw Unsupported(fmt::format("tensor {}: a model with this part is not served", name));
    }

    [[nodiscard]] ConstTensorView bias(const std::string& name, std::int64_t length, BiasRule rule) const {
        const bool present = has(name);
        if (present && rule == BiasRule::Forbidden)
            throw FormatError(
                fmt::format("tensor {} is there, but the configuration says that there is no such bias", name));
        if (!present && rule != BiasRule::Required) return {};
        return vector(name, length);
    }

    void bind_attention(LayerWeights& layer, const std::string& prefix) const {
        const auto name = [&](std::string_view stem, const char* end) {
            return fmt::format("{}{}.{}", prefix, stem, end);
        };
        const std::int64_t q_rows = config_.n_q_heads * config_.head_dim;
        const std::int64_t kv_rows = config_.n_kv_heads * config_.head_dim;
        const BiasRule rule = rules_.qkv_bias;
        if (has(name(names_.qkv, "weight")) && !has(name(names_.q, "weight"))) {
            const std::int64_t rows = q_rows + 2 * kv_rows;
            const ConstTensorView fused = matrix(name(names_.qkv, "weight"), rows, config_.d_model);
            layer.q = fused.slice_rows(0, q_rows);
            layer.k = fused.slice_rows(q_rows, kv_rows);
            layer.v = fused.slice_rows(q_rows + kv_rows, kv_rows);
            const ConstTensorView fused_bias = bias(name(names_.qkv, "bias"), rows, rule);
            if (!fused_bias.empty()) {
                layer.q_bias = slice_vector(fused_bias, 0, q_rows);
                layer.k_bias = slice_vector(fused_bias, q_rows, kv_rows);
                layer.v_bias = slice_vector(fused_bias, q_rows + kv_rows, kv_rows);
            }
        } else {
            layer.q = matrix(name(names_.q, "weight"), q_rows, config_.d_model);
            layer.k = matrix(name(names_.k, "weight"), kv_rows, config_.d_model);
            layer.v = matrix(name(names_.v, "weight"), kv_rows, config_.d_model);
            layer.q_bias = bias(name(names_.q, "bias"), q_rows, rule);
            layer.k_bias = bias(name(names_.k, "bias"), kv_rows, rule);
            layer.v_bias = bias(name(names_.v, "bias"), kv_rows, rule);
        }
        if (config_.architecture == Architecture::Qwen3) {
            layer.q_norm = vector(name(names_.q_norm, "weight"), config_.head_dim);
            layer.k_norm = vector(name(names_.k_norm, "weight"), config_.head_dim);
        } else {
            refuse(name(names_.q_norm, "weight"));
            refuse(name(names_.k_norm, "weight"));
        }
        layer.attn_out = matrix(name(names_.attn_out, "weight"), config_.d_model, q_rows);
        layer.attn_out_bias = bias(name(names_.attn_out, "bias"), config_.d_model, rules_.out_bias);
    }

    void bind_feed_forward(LayerWeights& layer, const std::string& prefix) const {
        const auto name = [&](std::string_view stem) { return fmt::format("{}{}.weight", prefix, stem); };
        if (has(name(names_.gate_up)) && !has(name(names_.gate))) {
            const ConstTensorView fused = matrix(name(names_.gate_up), 2 * config_.d_ff, config_.d_model);
            layer.gate = fused.slice_rows(0, config_.d_ff);
            layer.up = fused.slice_rows(config_.d_ff, config_.d_ff);
        } else {
            layer.gate = matrix(name(names_.gate), config_.d_ff, config_.d_model);
            layer.up = matrix(name(names_.up), config_.d_ff, config_.d_model);
        }
        layer.down = matrix(name(names_.down), config_.d_model, config_.d_ff);
    }

    [[nodiscard]] LayerWeights layer(std::int64_t index) const {
        const std::string prefix = fmt::format("{}{}.", names_.layer_prefix, index);
        for (const std::string_view foreign : names_.foreign_in_layer) refuse(fmt::format("{}{}", prefix, foreign));
        LayerWeights layer;
        layer.attn_norm = vector(fmt::format("{}{}.weight", prefix, names_.attn_norm), config_.d_model);
        bind_attention(layer, prefix);
        layer.ffn_norm = vector(fmt::format("{}{}.weight", prefix, names_.ffn_norm), config_.d_model);
        bind_feed_forward(layer, prefix);
        return layer;
    }

    const ModelConfig& config_;
    const TensorIndex& tensors_;
    const WeightNames& names_;
    const BindingRules& rules_;
};

}  // namespace

const WeightNames& hugging_face_names() {
    return kHuggingFace;
}
const WeightNames& gguf_names() {
    return kGguf;
}

ModelWeights bind_weights(const ModelConfig& config, const TensorIndex& tensors, const WeightNames& names,
                          const BindingRules& rules) {
    return Binder(config, tensors, names, rules).run();
}

}  // namespace slipstream
