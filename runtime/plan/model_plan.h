// A model on a device under a budget, planned: its items, what of them stays, and what passes of any size then take.
// For a model that is opened as well as for one that is only a shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "offload/residency_plan.h"
#include "runtime/plan/pass_cost.h"
#include "runtime/plan/pass_items.h"

namespace slipstream {

struct ModelPlanRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // views with or without memory
    WeightRounding rounding = WeightRounding::None;
    DType kv_dtype = DType::F16;
    std::int64_t context_tokens = 0;

    std::size_t budget_bytes = 0;
    std::size_t fixed_bytes = 0;      // of it taken whatever streams
    std::size_t kv_tail_bytes = 0;    // of it taken as soon as KV streams
    std::size_t streaming_bytes = 0;  // of it taken as soon as anything streams, the ring not counted
    std::size_t ring_bytes = 0;       // 0: planned
    std::int64_t ring_layers = 1;     // layers of weights that the ring is to hold at once, where there is room
    bool weights_stay = false;        // KV alone may stream
    std::size_t max_item_bytes = 0;   // 0: item_limit() of the budget, less where that is too much for it

    PassRates rates;
    double link_bytes_per_second = 0.0;
    double memory_bytes_per_second = 0.0;  // of the host, as much as this device may take; 0: no limit
    double host_bytes_per_copied_byte = 1.0;
    double fixed_seconds = 0.0;               // of a pass: drafting that nothing hides
    std::optional<std::int64_t> pass_tokens;  // to plan for; nothing: as many as ride along (see ModelPlan)
};

/// Tokens ride along while a pass with twice as many takes at most this much more than a pass of one: so that the link
/// stays the limit also where a change makes it faster.
inline constexpr double kRidingAlong = 1.15;
inline constexpr std::int64_t kMostPassTokens = 256;

class ModelPlan {
public:
    /// Throws OutOfBudget as plan_residency() does.
    explicit ModelPlan(const ModelPlanRequest& request);

    [[nodiscard]] const ResidencyPlan& residency() const { return residency_; }
    /// Item i belongs to residency().resident_bytes[i].
    [[nodiscard]] const std::vector<PassItem>& pass_items() const { return pass_items_; }
    [[nodiscard]] const std::vector<WeightItem>& items() const { return items_; }
    /// That they were cut to.
    [[nodiscard]] std::size_t max_item_bytes() const { return request_.max_item_bytes; }
    /// Tokens of the pass that was planned for: those of the request, or the largest power of two, up to 256, whose
    /// pass takes at most kRidingAlong times a pass of one.
    [[nodiscard]] std::int64_t pass_tokens() const { return pass_tokens_; }
    [[nodiscard]] std::int64_t context_tokens() const { return request_.context_tokens; }
    /// Whether a prompt reads what streams of the weights once; otherwise once a prefill chunk of 512 tokens.
    [[nodiscard]] bool prompts_read_weights_once() const {
        return least_ring_bytes_ > 0 || residency_.streamed_weights_bytes == 0;
    }
    /// What its device is asked to hold and copy in such a pass: the request whose decisions residency() has.
    [[nodiscard]] ResidencyRequest residency_request(std::int64_t n_tokens, std::int64_t text_tokens) const;
    /// A pass of `n_tokens` behind `text_tokens` committed ones (at most the context), with this residency.
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens, std::int64_t text_tokens) const;
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens) const { return pass(n_tokens, request_.context_tokens); }

    [[nodiscard]] std::size_t weights_bytes() const;
    [[nodiscard]] std::size_t kv_bytes() const;
    /// Host memory that what streams lies in: whole items of weights, and of KV what is not resident.
    [[nodiscard]] std::size_t pinned_bytes() const;

private:
    void place(std::size_t max_item_bytes);

    ModelPlanRequest request_;
    std::int64_t queries_per_kv_head_ = 1;
    std::vector<WeightItem> items_;
    std::vector<PassItem> pass_items_;
    std::int64_t pass_tokens_ = 1;
    std::size_t least_ring_bytes_ = 0;     // 0: two items do
    std::size_t least_kv_ring_bytes_ = 0;  // besides, where KV streams, too
    ResidencyPlan residency_;
};

}  // namespace slipstream
