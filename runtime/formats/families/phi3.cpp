// Phi-3 and Phi-4: Llama's layers with fused projections, longrope and one window for all layers.
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

// Reads the window. There are no biases to read: in transformers, Phi-3 has none and ignores "attention_bias".
void read_phi3(const JsonFields& fields, HfConfig& config) {
    set_windows(fields, fields.integer("sliding_window"), config.model);
}

void read_phi3_gguf(const GgufKeys& keys, ModelConfig& config) {
    read_gguf_windows(keys, 0, config);
}

}  // namespace

constinit const Family kPhi3{
    .name = "phi3",
    .hf_class = "Phi3ForCausalLM",
    .hf_model_type = "phi3",
    .hf_defaults = {.context_tokens = 4096, .rms_eps = 1e-5, .rope_original_context = 4096, .yarn_is_longrope = true},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_phi3,
    .gguf_name = "phi3",
    .gguf_names = tensor_names::gguf(),
    .gguf_biases = {},
    .read_gguf = read_phi3_gguf,
};

}  // namespace slipstream
