// Ministral 3 (transformers: models/ministral3; llama.cpp: src/models/mistral3.cpp): Mistral's layers with yarn, and
// queries that grow with the position. GGUF files of Mistral Small 3.x have the same architecture name, but neither the
// keys of yarn nor those of the growth.
#include <array>
#include <string_view>

#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/hf_windows.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

namespace {

void read_mistral3(const JsonFields& fields, HfConfig& config) {
    const auto* rope = fields.object("rope_parameters");
    if (rope == nullptr) rope = fields.object("rope_scaling");
    if (rope == nullptr) fields.fail("rope_parameters", "is missing");
    const JsonFields inner(*rope, fields.name());
    RopeConfig& found = config.model.ropes.front();
    found.query_growth = inner.number("llama_4_scaling_beta").value_or(0.0);
    if (found.query_growth != 0.0)
        found.query_growth_period = inner.integer("original_max_position_embeddings").value_or(0);
    if (found.query_growth != 0.0 && found.query_growth_period == 0)
        fields.fail("rope_parameters", "has llama_4_scaling_beta without original_max_position_embeddings");
    set_windows(fields, fields.integer("sliding_window"), config.model);
}

void read_mistral3_gguf(const GgufKeys& keys, ModelConfig& config) {
    RopeConfig& rope = config.ropes.front();
    rope.query_growth = keys.number("attention.temperature_scale").value_or(0.0);
    if (rope.query_growth != 0.0)
        rope.query_growth_period = keys.integer("attention.temperature_length").value_or(rope.scaling.original_context);
    // The key stores mscale_all_dim; GGUF does not store mscale, which is 1 in all published models.
    if (const auto all_dim = keys.number("rope.scaling.yarn_log_multiplier"); all_dim && *all_dim != 0.0) {
        rope.scaling.mscale = 1.0;
        rope.scaling.mscale_all_dim = *all_dim;
    }
    read_gguf_windows(keys, 0, config);
}

void set_published_mistral3(ModelConfig& config, std::int64_t /*window*/) {
    config.ropes.front() = {.theta = 1e6,
                            .n_rotated = config.attention(0).head_dim,
                            .scaling = {.kind = RopeScalingKind::Yarn,
                                        .factor = 16.0,
                                        .original_context = 16384,
                                        .mscale = 1.0,
                                        .mscale_all_dim = 1.0},
                            .query_growth = 0.1,
                            .query_growth_period = 16384};
}

constexpr std::array<std::string_view, 2> kGrowthKeys{"attention.temperature_scale",
                                                      "rope.scaling.yarn_log_multiplier"};

}  // namespace

constinit const Family kMistral3{
    .name = "mistral3",
    .set_published = set_published_mistral3,
    .hf_class = "Ministral3ForCausalLM",
    .hf_model_type = "ministral3",
    .hf_outer_class = "Mistral3ForConditionalGeneration",
    .hf_defaults =
        {.context_tokens = 262144, .n_kv_heads = 8, .head_dim = 128, .rms_eps = 1e-5, .n_q_heads = 32, .vocab = 131072},
    .hf_names = tensor_names::hugging_face(),
    .read_hf = read_mistral3,
    .gguf_name = "mistral3",
    .gguf_rope_layout = RopeLayout::Interleaved,
    .gguf_keys = kGrowthKeys,
    .gguf_names = tensor_names::gguf(),
    .gguf_biases = {},
    .read_gguf = read_mistral3_gguf,
};

}  // namespace slipstream
