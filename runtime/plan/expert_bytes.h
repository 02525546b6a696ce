// Bytes of a model's experts, and of the weights that a pass reads. Shapes and types are enough.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "runtime/plan/expert_misses.h"

namespace slipstream {

struct ExpertBytes {
    std::size_t experts = 0;  // of the experts of all layers
    std::size_t read = 0;     // of all weights but the token embedding that a pass is expected to read
};

/// Returns the bytes for a pass of `n_tokens` tokens, which needs as many experts as expected_distinct() says.
/// `counted`, [layers], is what earlier texts tell; empty: tokens choose independently and evenly. Real tokens choose
/// more alike, so a pass then reads at most so much.
[[nodiscard]] ExpertBytes expert_bytes(const ModelConfig& config, const ModelWeights& weights, double n_tokens,
                                       std::span<const CountedExperts> counted = {});
/// Returns whether `counted`, [layers], tells of each layer with experts how many distinct ones passes need.
[[nodiscard]] bool distinct_is_counted(const ModelConfig& config, std::span<const CountedExperts> counted);

/// Returns the experts of the first layer that has some; null if none has.
[[nodiscard]] const ExpertsConfig* first_experts(const ModelConfig& config);
/// Returns how many layers have experts.
[[nodiscard]] std::int64_t n_expert_layers(const ModelConfig& config);

}  // namespace slipstream
