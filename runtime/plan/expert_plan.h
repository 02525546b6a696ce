// What a plan does with the experts of a model, over all devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/plan/split_plan.h"

namespace slipstream {

enum class ExpertRegime : std::uint8_t {
    Fit,      // all experts are on the devices
    InSlots,  // experts have slots, and take those of others
    Fixed,    // some experts are on the devices and stay there, the others are copied when they are chosen
    Stream,   // all experts are copied when they are chosen
    OnCpu,    // experts that are not on the devices are computed by the CPU when they are chosen
};
/// Returns "experts fit", "experts in slots", "experts fixed", "experts stream" or "experts on the CPU".
[[nodiscard]] std::string_view expert_regime_name(ExpertRegime regime);

struct ExpertPlan {
    ExpertRegime regime = ExpertRegime::Fit;
    std::int64_t n_experts = 0;  // of all layers; 0: the model has none
    std::int64_t n_slots = 0;    // of all layers
    /// Of layers of which some experts may have to be copied: the fewest and the most slots of a layer, and the experts
    /// of a layer.
    std::int64_t least_slots = 0;
    std::int64_t most_slots = 0;
    std::int64_t layer_experts = 0;
    std::size_t slot_bytes = 0;  // of all slots
    /// Expected share, over all layers, of the experts chosen by a token that are on the device: where experts have
    /// slots expected_hits(); elsewhere the share of the experts that are there, as if tokens chose evenly.
    double hits = 1.0;
    bool hits_are_counted = false;  // as SplitPlan::with_counted() has it; false: they are a prior, or even
    /// As SplitPlan::with_counted() has it; false: tokens of a pass are expected to choose evenly.
    bool distinct_is_counted = false;
    double copied_bytes = 0.0;  // bytes of experts that a pass of SplitPlan::pass_tokens() is expected to copy
    double cpu_bytes = 0.0;     // of those that the CPU then computes in host memory instead
};
[[nodiscard]] ExpertPlan expert_plan(const SplitPlan& plan);
/// Returns ExpertPlan::hits of SplitPlan::with_miss_factor(miss_factor).
[[nodiscard]] double expert_hits(const SplitPlan& plan, double miss_factor);
/// Returns that of a model whose weights are all on its devices.
[[nodiscard]] ExpertPlan resident_expert_plan(const ModelConfig& config, std::span<const CountedExperts> counted);

}  // namespace slipstream
