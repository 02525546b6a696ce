// Reads the rotary embedding from a config.json, in its three spellings: rope_theta with rope_scaling ("type" or
// "rope_type"), or the rope_parameters object of transformers 5, which has theta, partial_rotary_factor and the scaling
// together.
#pragma once

#include "runtime/model/model_config.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

/// Sets config.rope_theta, n_rotated and rope_scaling. config.head_dim and context_tokens must be set before. Throws
/// FormatError or Unsupported.
void read_hf_rope(const JsonFields& fields, ModelConfig& config);

}  // namespace slipstream
