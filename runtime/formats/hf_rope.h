// Reads the rotary embedding from a config.json. Files have it in three forms: rope_theta and rope_scaling with "type",
// the same with "rope_type", or the rope_parameters object of transformers 5, which has theta, partial_rotary_factor
// and the scaling together.
#pragma once

#include "runtime/formats/family.h"
#include "runtime/model/model_config.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

/// Returns the rotary embedding for heads of `head_dim` elements and a model trained for `context_tokens`. If
/// "rope_parameters" has an object for each type of layer, it is that of the type `layer_type` ("full_attention");
/// null: that of all layers. Throws FormatError or Unsupported.
[[nodiscard]] RopeConfig read_hf_rope(const JsonFields& fields, const HfDefaults& defaults, std::int64_t context_tokens,
                                      std::int64_t head_dim, const char* layer_type = nullptr);

}  // namespace slipstream
