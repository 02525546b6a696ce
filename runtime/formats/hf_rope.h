// Reads the rotary embedding from a config.json, in its three spellings: rope_theta with rope_scaling ("type" or
// "rope_type"), or the rope_parameters object of transformers 5, which has theta, partial_rotary_factor and the scaling
// together.
#pragma once

#include "runtime/formats/family.h"
#include "runtime/model/model_config.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

/// Returns the rotary embedding of the layers whose type is `layer_type` ("full_attention") if "rope_parameters" has
/// one for each type; of all layers if it is null. For heads of `head_dim` elements and a model trained for
/// `context_tokens`. Throws FormatError or Unsupported.
[[nodiscard]] RopeConfig read_hf_rope(const JsonFields& fields, const HfDefaults& defaults, std::int64_t context_tokens,
                                      std::int64_t head_dim, const char* layer_type = nullptr);

}  // namespace slipstream
