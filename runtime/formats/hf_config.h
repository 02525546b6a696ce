// config.json and generation_config.json of a Hugging Face directory to a ModelConfig. Works on text, so that it can be
// fuzzed. Architectures: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Phi3ForCausalLM;
// others are refused by name. Field names and defaults are transformers' (models/*/configuration_*.py and
// modeling_rope_utils.py, 4.40 to 5.23).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

/// Which projections of the attention carry a bias.
enum class AttentionBias : std::uint8_t { None, Qkv, QkvAndOut };

struct HfConfig {
    ModelConfig model;  // validated; kv_dtype is set where the file names a type
    AttentionBias attention_bias = AttentionBias::None;
    std::optional<DType> dtype;  // "torch_dtype" or "dtype"
    std::optional<std::int64_t> bos_id;
    std::vector<TokenId> end_tokens;  // eos_token_id, one or several
};

/// Throws FormatError (missing or contradictory fields) or Unsupported (architecture, activation, scaling); `name` is
/// the file's, for messages.
[[nodiscard]] HfConfig parse_hf_config(std::string_view json_text, const std::string& name);

/// generation_config.json. `end_tokens` is empty where the file names none.
[[nodiscard]] GenerationDefaults parse_generation_config(std::string_view json_text, const std::string& name);

}  // namespace slipstream
