// Mixtral: Llama's layers with experts. In GGUF files it is a llama with experts (llama.cpp).
#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

constexpr TensorNames hf_names() {
    TensorNames names = tensor_names::hugging_face();
    names[TensorRole::Router] = "block_sparse_moe.gate.weight";
    names.experts = {{{"block_sparse_moe.experts.", ".w1.weight", {}},
                      {"block_sparse_moe.experts.", ".w3.weight", {}},
                      {"block_sparse_moe.experts.", ".w2.weight", {}}}};
    return names;
}

void read_mixtral(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    const ExpertsConfig experts = read_hf_experts(
        fields, {.count = "num_local_experts", .d_ff = "intermediate_size", .absent_count = 8, .absent_chosen = 2});
    for (LayerConfig& layer : config.layers) {
        layer.feed_forward.d_ff = 0;
        layer.feed_forward.experts = experts;
    }
    const auto window = fields.integer("sliding_window");
    if (window) set_windows(fields, window, config);
}

}  // namespace

constinit const Family kMixtral{
    .name = "mixtral",
    .hf_class = "MixtralForCausalLM",
    .hf_model_type = "mixtral",
    .hf_defaults = {.context_tokens = 131072, .n_kv_heads = 8, .rms_eps = 1e-5, .rope_theta = 1e6},
    .hf_names = hf_names(),
    .hf_has_experts = true,
    .read_hf = read_mixtral,
    .gguf_name = "",
    .gguf_names = {},
    .gguf_biases = {},
    .read_gguf = nullptr,
};

}  // namespace slipstream
