// Qwen2, 2.5 and 3, dense, and Qwen3 with experts. Qwen2 has biases of query, key and value; Qwen3 has norms of the
// heads of query and key.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Sets the windows, if "use_sliding_window" is true: for the layers that are "sliding_attention" in "layer_types", or
// without that field, from layer "max_window_layers" on.
void read_windows(const JsonFields& fields, ModelConfig& config) {
    if (!fields.boolean("use_sliding_window").value_or(false)) return;
    const auto window = fields.has("sliding_window") ? fields.integer("sliding_window") : 4096;
    if (fields.find("layer_types") != nullptr) return set_windows_by_type(fields, window, config);
    set_windows(fields, window, config);
    const std::int64_t first =
        std::clamp<std::int64_t>(fields.integer("max_window_layers").value_or(28), 0, config.n_layers());
    for (std::int64_t layer = 0; layer < first; ++layer) config.layers[layer].attention().window = 0;
}

void read_qwen2(const JsonFields& fields, HfConfig& config) {
    config.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Forbidden};
    read_windows(fields, config.model);
}

void read_qwen3(const JsonFields& fields, HfConfig& config) {
    if (fields.boolean("attention_bias").value_or(false) || fields.boolean("bias").value_or(false))
        config.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
    read_windows(fields, config.model);
}

void read_qwen3_moe(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    read_qwen3(fields, result);
    ExpertsConfig experts = read_hf_experts(fields, {.count = "num_experts",
                                                     .other_count = "num_local_experts",
                                                     .d_ff = "moe_intermediate_size",
                                                     .absent_count = 128,
                                                     .absent_chosen = 8,
                                                     .absent_d_ff = 768});
    experts.weighting.normalized = fields.boolean("norm_topk_prob").value_or(false);
    const std::vector<bool> is_dense = read_dense_layers(fields, config.n_layers());
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        if (is_dense[i]) continue;
        config.layers[i].feed_forward.d_ff = 0;
        config.layers[i].feed_forward.experts = experts;
    }
}

// Sets the windows. Throws Unsupported for a window without a pattern of layers: layers below max_window_layers have no
// window, and GGUF does not store that number. A window that covers the context is ignored.
void read_qwen_gguf(const GgufKeys& keys, ModelConfig& config) {
    const std::int64_t window = keys.integer("attention.sliding_window").value_or(0);
    if (window > 0 && keys.find("attention.sliding_window_pattern") == nullptr) {
        if (window >= config.context_tokens) return;
        throw Unsupported(fmt::format("{}: {} = {} without a pattern of layers is not served for {}",
                                      keys.file().name(), keys.key("attention.sliding_window"), window, config.family));
    }
    read_gguf_windows(keys, 0, config);
}

// GGUF does not store norm_topk_prob: the weights of published models are normalised, as llama.cpp does.
void read_qwen3_moe_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_qwen_gguf(keys, config);
    ExpertsConfig experts = read_gguf_experts(keys, GgufGating::Softmax, std::nullopt);
    experts.weighting.normalized = keys.file().boolean(keys.key("expert_weights_norm")).value_or(true);
    for (LayerConfig& layer : config.layers) {
        layer.feed_forward.d_ff = 0;
        layer.feed_forward.experts = experts;
    }
}

}  // namespace

constinit const Family kQwen2{
    .name = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .hf_model_type = "qwen2",
    .hf_defaults = {.context_tokens = 32768, .n_kv_heads = 32},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_qwen2,
    .gguf_name = "qwen2",
    .gguf_names = tensor_names::gguf(),
    .gguf_biases = {.qkv_bias = BiasRule::Required},
    .read_gguf = read_qwen_gguf,
};

constinit const Family kQwen3{
    .name = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .hf_model_type = "qwen3",
    .hf_defaults = {.context_tokens = 32768, .n_kv_heads = 32, .head_dim = 128},
    .hf_names = tensor_names::with_head_norms(tensor_names::hugging_face()),
    .read_hf = read_qwen3,
    .gguf_name = "qwen3",
    .gguf_names = tensor_names::with_head_norms(tensor_names::gguf()),
    .gguf_biases = {},
    .read_gguf = read_qwen_gguf,
};

constinit const Family kQwen3Moe{
    .name = "qwen3moe",
    .hf_class = "Qwen3MoeForCausalLM",
    .hf_model_type = "qwen3_moe",
    .hf_defaults = {.context_tokens = 32768, .n_kv_heads = 4, .n_q_heads = 32, .vocab = 151936},
    .hf_names = tensor_names::with_experts(tensor_names::with_head_norms(tensor_names::hugging_face())),
    .hf_has_experts = true,
    .read_hf = read_qwen3_moe,
    .gguf_name = "qwen3moe",
    .gguf_keys = kExpertKeys,
    .gguf_names = tensor_names::with_experts(tensor_names::with_head_norms(tensor_names::gguf())),
    .gguf_biases = {},
    .read_gguf = read_qwen3_moe_gguf,
};

}  // namespace slipstream
