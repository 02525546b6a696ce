// Reads a ModelConfig from the text of config.json, and sampling defaults from generation_config.json (Hugging Face
// directories). Reads text, not files, so that it can be fuzzed. An architecture that no family has (family.h) is
// refused by name. Field names and defaults are those of transformers (models/*/configuration_*.py and
// modeling_rope_utils.py, 4.40 to 5.23).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/weight_binding.h"
#include "runtime/model/model_config.h"

namespace slipstream {

/// The contents of a config.json.
struct HfConfig {
    ModelConfig model;                  // validated; kv_dtype is `dtype`, or F16 if that is nullopt
    bool is_nested = false;             // the text model is part of a larger one, and its tensor names have a prefix
    bool is_tied_without_head = false;  // the LM head is tied to the embedding if the file has no tensor for it
    BindingRules biases{BiasRule::Forbidden, BiasRule::Forbidden};
    std::optional<DType> dtype;  // type named by "torch_dtype" or "dtype"; nullopt: not given, or another one
    std::optional<std::int64_t> bos_id;
    std::vector<TokenId> end_tokens;  // "eos_token_id", one or several; empty: none
};

/// Parses a config.json. `name` is the name of the file, for messages. Throws FormatError (missing or contradictory
/// fields) or Unsupported (architecture, activation, rope scaling, quantised weights, experts).
[[nodiscard]] HfConfig parse_hf_config(std::string_view json_text, const std::string& name);

/// Parses a generation_config.json. `end_tokens` of the result is empty if the file has none. Throws FormatError.
[[nodiscard]] GenerationDefaults parse_generation_config(std::string_view json_text, const std::string& name);

}  // namespace slipstream
