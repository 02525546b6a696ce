// The items that a pass reads, in order: items of {q, k, v} of layer 0, KV of layer 0, items of {attention output,
// gate, up, down} of layer 0, layer 1, ..., the LM head. They follow from shapes and types alone, so views without
// memory are enough to plan for a model that is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "offload/residency_plan.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/experts/miss_rules.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weights.h"
#include "runtime/plan/expert_misses.h"
#include "runtime/plan/pass_cost.h"

namespace slipstream {

/// An item of a pass: a weight item, or the KV of a layer. See PlanItem for the sizes.
struct PassItem {
    PlanTag tag = PlanTag::Weights;
    std::int64_t layer = 0;         // n_layers for the LM head
    std::int64_t weight_item = -1;  // index among the weight items; -1: the KV of the layer
    std::size_t bytes = 0;          // size of the item; of KV: of the chunks that the layer keeps at full context
    /// The first n units of an item can be resident. Of weights: `bytes`; of KV: a KV chunk.
    std::size_t unit_bytes = 0;
    /// Most bytes of one copy. Of weights: `bytes`; of KV: an extent, or of a mixture of experts at most
    /// kMostBytesBesideDemand in whole chunks.
    std::size_t transfer_bytes = 0;
    std::size_t state_bytes = 0;           // state of a recurrent layer, always resident; such a layer has no KV
    std::size_t window_bytes = 0;          // KV that a layer with a sliding window reads; 0: all
    std::int64_t queries_per_kv_head = 1;  // only of KV: number of query heads that share a kv head
    /// The bytes of a weight item that have one type.
    struct Part {
        DType dtype = DType::F32;
        std::size_t bytes = 0;
    };
    std::vector<Part> parts;  // empty for KV
    ExpertChoice choice{};    // of an expert (OnDemand): the experts of its layer
};

/// What the items are made from. Pointers must not be null (CHECKed).
struct PassItemRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;
    std::span<const WeightItem> items;  // cut_weight_items() of these weights
    DType kv_dtype = DType::F16;
    std::int64_t context_tokens = 0;
};
/// Returns the items of a pass in reading order. The weight items must cover all layers (CHECKed).
[[nodiscard]] std::vector<PassItem> make_pass_items(const PassItemRequest& request);

/// Most that kv_bytes() returns: far enough from overflow that file sizes can be added.
inline constexpr std::size_t kMaxKvBytes = std::size_t{1} << 62;
/// Returns the bytes of the KV that a model keeps at this context, in whole KV chunks: of a layer with a sliding
/// window, those of its ring. At most kMaxKvBytes.
[[nodiscard]] std::size_t kv_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t context_tokens);

/// Size of a pass.
struct PassLoad {
    std::int64_t n_tokens = 1;  // tokens that the pass processes
    /// Committed tokens before it; more than the context counts as the context.
    std::int64_t text_tokens = std::numeric_limits<std::int64_t>::max();
    double miss_factor = 1.0;                   // as of expected_misses()
    std::span<const CountedExperts> counted{};  // [layers]; empty: nothing is known of any
};
/// Returns the transfer schedule of a pass with the time of each item; element i is pass item i. Of the KV, only full
/// chunks are in the schedule.
[[nodiscard]] std::vector<PlanItem> plan_schedule(std::span<const PassItem> pass_items, const PassRates& rates,
                                                  const PassLoad& load);

/// Returns the bytes that the ring must hold at once: at least two items, and at least the weights of the largest
/// layer, so that all prefill chunks of a prompt can go through a layer while it is on the device. `n_layers`: holds
/// the weights of so many such layers, for a device that waits for others between its layers. `misses`: Cpu copies no
/// experts.
[[nodiscard]] std::size_t least_ring_bytes(std::span<const PassItem> pass_items, std::int64_t n_layers = 1,
                                           ExpertMisses misses = ExpertMisses::Copy);

/// Least size of a weight item in bytes: items are not cut smaller to fit a small budget.
inline constexpr std::size_t kMinItemBytes = std::size_t{1} << 20;

/// Returns the most bytes of a weight item for a device with this budget: 64 MiB, or a sixteenth of the budget (four
/// items in a quarter of it) if that is less, but at least kMinItemBytes.
[[nodiscard]] std::size_t item_limit(std::size_t budget_bytes);

}  // namespace slipstream
