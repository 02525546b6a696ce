// SmolLM3 (transformers: models/smollm3; llama.cpp: src/models/smollm3.cpp): Llama's layers, but every fourth layer
// does not encode positions. The field "no_rope_layers" has 1 for layers that do encode them, 0 for the others.
#include <fmt/format.h>
#include <cstdint>

#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Layers of a period. The last layer of each period has no RoPE. GGUF does not store it.
constexpr std::int64_t kPeriod = 4;

void set_periodic_ropes(ModelConfig& config, std::int64_t period) {
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer)
        if ((layer + 1) % period == 0) config.layers[layer].attention().rope = kNoRope;
}

void read_ropes(const JsonFields& fields, ModelConfig& config) {
    const auto flags = fields.numbers("no_rope_layers");
    if (!flags) {
        const std::int64_t period = fields.integer("no_rope_layer_interval").value_or(kPeriod);
        if (period < 1) fields.fail("no_rope_layer_interval", fmt::format("is {}", period));
        return set_periodic_ropes(config, period);
    }
    if (flags->size() < config.layers.size())
        fields.fail("no_rope_layers", fmt::format("has {} numbers for {} layers", flags->size(), config.layers.size()));
    for (std::size_t i = 0; i < config.layers.size(); ++i)
        if ((*flags)[i] == 0.0) config.layers[i].attention().rope = kNoRope;
}

void read_smollm3(const JsonFields& fields, HfConfig& result) {
    ModelConfig& config = result.model;
    if (fields.boolean("attention_bias").value_or(false))
        result.biases = {.qkv_bias = BiasRule::Required, .out_bias = BiasRule::Required};
    read_ropes(fields, config);
    if (!fields.boolean("use_sliding_window").value_or(false)) return;
    const auto window = fields.integer("sliding_window");
    if (fields.find("layer_types") != nullptr) return set_windows_by_type(fields, window, config);
    set_windows(fields, window, config);
    for (LayerConfig& layer : config.layers)
        if (layer.attention().rope != kNoRope) layer.attention().window = 0;
}

void read_smollm3_gguf(const GgufKeys& keys, ModelConfig& config) {
    set_periodic_ropes(config, kPeriod);
    read_gguf_windows(keys, 0, config);
}

void set_published_smollm3(ModelConfig& config, std::int64_t /*window*/) {
    set_periodic_ropes(config, kPeriod);
}

}  // namespace

constinit const Family kSmolLm3{
    .name = "smollm3",
    .set_published = set_published_smollm3,
    .hf_class = "SmolLM3ForCausalLM",
    .hf_model_type = "smollm3",
    .hf_defaults = {.context_tokens = 32768,
                    .n_kv_heads = 4,
                    .n_q_heads = 16,
                    .vocab = 128256,
                    .tied_embeddings = true,
                    .rope_theta = 2e6},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_smollm3,
    .gguf_name = "smollm3",
    .gguf_rope_layout = RopeLayout::Interleaved,
    .gguf_names = tensor_names::gguf(),
    .gguf_biases = {},
    .read_gguf = read_smollm3_gguf,
};

}  // namespace slipstream
