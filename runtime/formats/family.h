// Model families: how the files of a family name tensors and fields, and what its layers compute. A family is one file
// in families/ and one entry of kFamilies. The readers of both formats read what all families have in common, then call
// the function of the family.
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
    bool rope_by_layer_type = false;  // "rope_parameters" may have an object for each type of layer
    /// "original_max_position_embeddings" of rope scaling for a file that does not have it beside the scaling object;
    /// 0: no default.
    std::int64_t rope_original_context = 0;
    bool yarn_is_longrope = false;  // the first files of Phi-3 call longrope "yarn"
    double rotated_share = 1.0;     // "partial_rotary_factor"
};

/// How Hugging Face directories name the tensors of an MTP head (head_files.h).
enum class HeadNaming : std::uint8_t {
    None,      // no files of the family have one, of either format
    Apart,     // "mtp.*"
    OneLayer,  // as a layer after those of the model, "model.layers.L.*"
};

struct Family {
    std::string_view name;  // ModelConfig::family
    HeadNaming head = HeadNaming::None;
    /// Sets what published models compute in their layers beyond the sizes, for models without files (`plan --shape`).
    /// `window` is the sliding window of the layers that have one. Null: there is nothing to set.
    void (*set_published)(ModelConfig& config, std::int64_t window) = nullptr;

    // Hugging Face directories.
    std::string_view hf_class;       // in "architectures"; empty: the text model alone has no class
    std::string_view hf_model_type;  // "model_type", for files without "architectures"
    // Class of models with more than text, which have the fields of this family in "text_config". Families may have the
    // same class: then "model_type" in "text_config" chooses; without it, the first of them in kFamilies is used.
    std::string_view hf_outer_class;
    HfDefaults hf_defaults;
    TensorNames hf_names;
    std::string_view hf_quantisation;  // "quant_method" of weights that are served; empty: none
    bool hf_has_experts = false;  // a config.json may count experts; read_hf() reads them. In GGUF files: gguf_keys
    /// Reads the fields that only this family has, and those that have another meaning in it. When it is called, the
    /// layers of `config` are all equal and have no windows. Never null.
    void (*read_hf)(const JsonFields& fields, HfConfig& config);

    // GGUF files.
    std::string_view gguf_name;  // general.architecture; empty: the converter writes another family's name
    // Which values of a head are rotated together in GGUF files: the converter of some families reorders the rows of Q
    // and K. With a wrong layout the text is fluent but wrong, so look at the converter and at llama_rope_type() of
    // llama.cpp. In Hugging Face directories the layout is always Half.
    RopeLayout gguf_rope_layout = RopeLayout::Half;
    /// The keys of kNeutralKeys (gguf_config.cpp), without the architecture, that read_gguf() reads. A file is refused
    /// if another key of kNeutralKeys has a value that changes the result. If "attention.head_count_kv" is listed here,
    /// read_gguf() sets the kv heads of each layer; if "expert_count" is, it sets the experts. Other keys that
    /// read_gguf() reads need not be listed.
    std::span<const std::string_view> gguf_keys{};
    TensorNames gguf_names;
    /// Rules for GGUF files, where no field says whether there are biases. For Hugging Face directories, the fields set
    /// HfConfig::biases.
    BindingRules gguf_biases;
    /// Does for GGUF files what read_hf() does. Null only if gguf_name is empty.
    void (*read_gguf)(const GgufKeys& keys, ModelConfig& config);
};

// All families, in the order in which messages list them. Each one is defined in a file of families/.
extern const Family kLlama, kMistral, kMistral3, kMixtral, kQwen2, kQwen3, kQwen3Moe, kPhi3, kGemma2, kGemma3, kGemma4,
    kGemma4Unified, kMuseGlimmer, kSmolLm3, kGranite, kGlm4Moe, kGptOss, kOlmoe, kQwen35, kQwen35Moe, kQwen3Next;
inline constexpr std::array kFamilies{&kLlama,       &kMistral,   &kMistral3, &kMixtral, &kQwen2,  &kQwen3,
                                      &kQwen3Moe,    &kPhi3,      &kGemma2,   &kGemma3,  &kGemma4, &kGemma4Unified,
                                      &kMuseGlimmer, &kSmolLm3,   &kGranite,  &kGlm4Moe, &kGptOss, &kOlmoe,
                                      &kQwen35,      &kQwen35Moe, &kQwen3Next};

/// Returns the family whose name is `name`, a ModelConfig::family (CHECKed to exist).
[[nodiscard]] const Family& find_family(std::string_view name);

}  // namespace slipstream
