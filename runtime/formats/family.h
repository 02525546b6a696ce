// Model families: how the files of a family name tensors and fields, and what its layers compute. A family is one file
// in families/ and its name in kFamilies. Readers of both formats read what all families have in common, then call the
// function of the family.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/formats/hf_config.h"
#include "runtime/formats/tensor_names.h"
#include "runtime/formats/weight_binding.h"
#include "runtime/model/model_config.h"

namespace slipstream {

class GgufKeys;
class JsonFields;

/// Defaults of fields of a config.json, from the configuration class of the family in transformers.
struct HfDefaults {
    std::int64_t context_tokens = 0;  // 0: the field is required
    std::int64_t n_kv_heads = 0;      // 0: as many as query heads
    std::int64_t head_dim = 0;        // 0: hidden_size / query heads
    double rms_eps = 1e-6;
    std::int64_t n_q_heads = 0;  // 0: the field is required
    std::int64_t vocab = 0;      // 0: the field is required
    bool tied_embeddings = false;
    std::string_view activation = "silu";
    double rope_theta = 10000.0;
    bool rope_by_layer_type = false;         // "rope_parameters" may have an object for each type of layer
    std::int64_t rope_original_context = 0;  // of rope scaling; 0: max_position_embeddings
    bool yarn_is_longrope = false;           // first files of Phi-3 call longrope "yarn"
};

struct Family {
    std::string_view name;  // ModelConfig::family
    /// Sets what layers of published models compute beyond their sizes, for models without files (`plan --shape`).
    /// `window` is the sliding window of the layers that have one. Null: nothing.
    void (*set_published)(ModelConfig& config, std::int64_t window) = nullptr;

    // Hugging Face directories.
    std::string_view hf_class;       // in "architectures"; empty: such models are served inside larger ones only
    std::string_view hf_model_type;  // "model_type", for files without "architectures"
    // Of models with more than text, with the fields of this family in "text_config". Families may share one: the
    // "model_type" inside chooses, and without it the first of them is meant.
    std::string_view hf_outer_class;
    HfDefaults hf_defaults;
    TensorNames hf_names;
    bool hf_has_experts = false;  // a config.json may count experts; read_hf() reads them. In GGUF files: gguf_keys
    /// Reads the fields that only this family has, and those whose meaning it changes. The layers of `config` are all
    /// alike when it is called, without windows. Never null, nor is read_gguf.
    void (*read_hf)(const JsonFields& fields, HfConfig& config);

    // GGUF files.
    std::string_view gguf_name;  // general.architecture; empty: the converter writes another family's name
    // Which values of a head are rotated together in GGUF files, where the converter of some families reorders the rows
    // of Q and K. A wrong layout gives fluent, wrong text: look at the converter and at llama_rope_type() of llama.cpp.
    // In Hugging Face directories it is Half.
    RopeLayout gguf_rope_layout = RopeLayout::Half;
    /// Keys, without the architecture, of kNeutralKeys (gguf_config.cpp) that read_gguf() reads. A file is refused if
    /// another of those has a value that changes the result. "attention.head_count_kv" here: read_gguf() sets the kv
    /// heads of each layer. "expert_count" here: it sets the experts. Other keys that read_gguf() reads need no
    /// mention.
    std::span<const std::string_view> gguf_keys{};
    TensorNames gguf_names;
    BindingRules
        gguf_biases;  // in GGUF files no field says whether there are biases; HfConfig::biases is by the fields
    void (*read_gguf)(const GgufKeys& keys, ModelConfig& config);
};

// All families, in the order in which messages list them; each is defined in a file of families/.
extern const Family kLlama, kMistral, kMistral3, kMixtral, kQwen2, kQwen3, kQwen3Moe, kPhi3, kGemma2, kGemma3, kGemma4,
    kGemma4Unified, kMuseGlimmer, kSmolLm3, kGranite, kGlm4Moe;
inline constexpr std::array kFamilies{&kLlama,       &kMistral, &kMistral3, &kMixtral, &kQwen2,  &kQwen3,
                                      &kQwen3Moe,    &kPhi3,    &kGemma2,   &kGemma3,  &kGemma4, &kGemma4Unified,
                                      &kMuseGlimmer, &kSmolLm3, &kGranite,  &kGlm4Moe};

/// Returns the family of ModelConfig::family (CHECKed to exist).
[[nodiscard]] const Family& find_family(std::string_view name);

}  // namespace slipstream
