// Bytes of a model's experts, and of the weights that a pass reads. Shapes and types are enough.
#pragma once

#include <cstddef>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

struct ExpertBytes {
    std::size_t experts = 0;  // of the experts of all layers
    std::size_t read = 0;     // of all weights but the token embedding that a pass is expected to read
};

/// Returns the bytes for a pass of `n_tokens` tokens that choose experts independently and evenly: real tokens choose
/// more alike, so a pass reads at most so much.
[[nodiscard]] ExpertBytes expert_bytes(const ModelConfig& config, const ModelWeights& weights, double n_tokens);

/// Returns the experts of the first layer that has some; null if none has.
[[nodiscard]] const ExpertsConfig* first_experts(const ModelConfig& config);
/// Returns how many layers have experts.
[[nodiscard]] std::int64_t n_expert_layers(const ModelConfig& config);

}  // namespace slipstream
