// A model as the items that a pass reads, in order: items of {q, k, v} of layer 0, KV of layer 0, items of {attention
// output, gate, up, down}, layer 1, ..., the LM head. From shapes and types alone: views without memory do, so that a
// model that is not there can be planned for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "offload/residency_plan.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weights.h"
#include "runtime/plan/pass_cost.h"

namespace slipstream {

struct PassItem {
    PlanTag tag = PlanTag::Weights;
    std::int64_t layer = 0;         // n_layers for the LM head
    std::int64_t weight_item = -1;  // its number among the weight items; -1: the KV of the layer
    std::size_t bytes = 0;          // of KV: at full context
    std::size_t unit_bytes = 0;
    std::size_t transfer_bytes = 0;
    std::size_t window_bytes = 0;  // of KV that a layer with a window reads; 0: all
    struct Part {
        DType dtype = DType::F32;
        std::size_t bytes = 0;
    };
    std::vector<Part> parts;  // of weights: what it consists of; empty for KV
};

struct PassItemRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;
    std::span<const WeightItem> items;  // cut_weight_items() of those weights
    DType kv_dtype = DType::F16;
    std::int64_t context_tokens = 0;
};
[[nodiscard]] std::vector<PassItem> make_pass_items(const PassItemRequest& request);

struct PassLoad {
    std::int64_t n_tokens = 1;                                            // of the pass
    std::int64_t text_tokens = std::numeric_limits<std::int64_t>::max();  // committed; at most the context
    std::int64_t queries_per_kv_head = 1;
};
/// The program of a pass, item i from item i.
[[nodiscard]] std::vector<PlanItem> plan_schedule(std::span<const PassItem> pass_items, const PassRates& rates,
                                                  const PassLoad& load);

/// What must fit into the ring at once: two items, and the weights of the largest layer, so that all prefill chunks of
/// a prompt can go through a layer while it is there; of `n_layers` such layers where a device waits for others in
/// between.
[[nodiscard]] std::size_t least_ring_bytes(std::span<const PassItem> pass_items, std::int64_t n_layers = 1);

/// Items are not cut smaller for want of room.
inline constexpr std::size_t kMinItemBytes = std::size_t{1} << 20;

/// Most bytes of an item for a device of that budget: 64 MiB, less where four of them would take more than a quarter.
[[nodiscard]] std::size_t item_limit(std::size_t budget_bytes);

}  // namespace slipstream
