// What all generations of Gemma have in common.
#pragma once

#include <optional>

#include "kernels/base/dtype.h"
#include "runtime/model/model_config.h"

namespace slipstream {

/// Sets the activation and the scale of the embedding: sqrt(d_model), rounded to the type `rounded_to` if it is given,
/// because transformers multiplies the embedding in the type of the weights.
void set_gemma_common(ModelConfig& config, std::optional<DType> rounded_to = std::nullopt);

}  // namespace slipstream
