// Llama 1 to 3.x with the models that have the same layers, and Mistral up to Small 3.2. GGUF has one architecture name
// for both, for Mixtral too (mixtral.cpp), and newer converters write another one for Mistral Small 3.x (mistral3.cpp).

#include "runtime/formats/experts_fields.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

void read_llama(const JsonFields& fields, HfConfig& config) {
    if (fields.boolean("attention_bias").value_or(false) || fields.boolean("bias").value_or(false))
        config.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
}

void read_llama_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_gguf_windows(keys, 0, config);
    if (keys.integer("expert_count").value_or(0) == 0) return;
    const ExpertsConfig experts = read_gguf_experts(keys, GgufGating::Softmax, config.layers.front().feed_forward.d_ff);
    for (LayerConfig& layer : config.layers) {
        layer.feed_forward.d_ff = 0;
        layer.feed_forward.experts = experts;
    }
}

// Reads the window. There are no biases to read: in transformers, Mistral has none and ignores "attention_bias".
void read_mistral(const JsonFields& fields, HfConfig& config) {
    set_windows(fields, fields.has("sliding_window") ? fields.integer("sliding_window") : 4096, config.model);
}

}  // namespace

constinit const Family kLlama{
    .name = "llama",
    .hf_class = "LlamaForCausalLM",
    .hf_model_type = "llama",
    .hf_defaults = {.context_tokens = 2048},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_llama,
    .gguf_name = "llama",
    // llama.cpp's converter permutes the rows of Q and K of llama models so that rotated pairs are adjacent.
    .gguf_rope_layout = RopeLayout::Interleaved,
    .gguf_keys = kExpertKeys,
    .gguf_names = tensor_names::with_experts(tensor_names::gguf()),
    .gguf_biases = {},
    .read_gguf = read_llama_gguf,
};

constinit const Family kMistral{
    .name = "mistral",
    .hf_class = "MistralForCausalLM",
    .hf_model_type = "mistral",
    .hf_outer_class = "Mistral3ForConditionalGeneration",  // the class of Mistral Small 3.1 and 3.2
    .hf_defaults = {.context_tokens = 131072, .n_kv_heads = 8},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_mistral,
    .gguf_name = "",
    .gguf_names = {},
    .gguf_biases = {},
    .read_gguf = nullptr,
};

}  // namespace slipstream
