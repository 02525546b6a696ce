// Plans a model on one device under a memory budget: its items, which of them stay on the device, and how long passes
// of any size then take. Works for an opened model, and for one of which only the shapes are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "offload/residency_plan.h"
#include "runtime/plan/pass_cost.h"
#include "runtime/plan/pass_items.h"

namespace slipstream {

/// What is planned, and for which machine.
struct ModelPlanRequest {
    const ModelConfig* config = nullptr;    // not null; only read by the constructor
    const ModelWeights* weights = nullptr;  // not null; views with or without memory, only read by the constructor
    WeightRounding rounding = WeightRounding::None;
    DType kv_dtype = DType::F16;  // type of the KV cache
    std::int64_t context_tokens = 0;

    /// Memory of the device for the model; the following three are parts of it.
    std::size_t budget_bytes = 0;
    std::size_t fixed_bytes = 0;      // part of the budget needed in any case
    std::size_t kv_tail_bytes = 0;    // part of the budget needed if KV streams: device tails
    std::size_t streaming_bytes = 0;  // part of the budget needed if anything streams, without the ring
    std::size_t ring_bytes = 0;       // bytes of the ring; 0: the plan chooses
    std::int64_t ring_layers = 1;     // layers whose weights the ring should hold at once, if there is room
    bool weights_stay = false;        // true: all weights must be resident, and only KV may stream
    /// false: where experts stream, device memory for them is slots, and all are in host memory; true: those on the
    /// device stay there, and only the others are in host memory.
    bool fixed_experts = false;
    /// What happens to needed experts that are not on the device. Cpu: fixed_experts counts as true, and
    /// `speed.rates` must be those of the CPU.
    ExpertMisses misses = ExpertMisses::Copy;
    /// Most bytes of a weight item, experts left out; 0: item_limit() of the budget, or kMinItemBytes if that does not
    /// fit, and at most kMostBytesBesideDemand if experts and other weights stream
    std::size_t max_item_bytes = 0;

    DeviceSpeed speed{};
    double fixed_seconds = 0.0;  // seconds of a pass outside the schedule: drafting that overlaps with nothing
    /// Tokens of the pass that residency is planned for; nothing: chosen (ModelPlan::pass_tokens()).
    std::optional<std::int64_t> pass_tokens;
};

/// Tokens of a pass count as almost free while a pass with twice as many takes at most this times a pass of one token.
/// The factor of two keeps the link the limit even if a later change makes passes faster.
inline constexpr double kAlmostFree = 1.15;
/// Most tokens of the pass that residency is planned for.
inline constexpr std::int64_t kMostPassTokens = 256;
/// Passes that the ring of a mixture is planned for, per prefill chunk of 512 prompt tokens: a prompt of 16K tokens
/// and an answer of 512, one token per pass; or a prompt of 4K and the same answer, four tokens per pass.
inline constexpr double kPassesPerPrefillChunk = 16.0;

/// The plan of one device. Immutable.
class ModelPlan {
public:
    /// Makes the plan. Throws OutOfBudget as plan_residency() does.
    explicit ModelPlan(const ModelPlanRequest& request);

    /// Returns what stays on the device.
    [[nodiscard]] const ResidencyPlan& residency() const { return residency_; }
    /// Returns what a pass reads, in order; residency().resident_bytes[i] is of item i.
    [[nodiscard]] const std::vector<PassItem>& pass_items() const { return pass_items_; }
    /// Returns the weight items, which PassItem::weight_item numbers.
    [[nodiscard]] const std::vector<WeightItem>& items() const { return items_; }
    /// Returns the limit of bytes to which the weight items were cut.
    [[nodiscard]] std::size_t max_item_bytes() const { return request_.max_item_bytes; }
    /// Returns the tokens of the pass that residency is planned for: those of the request or, without one, the largest
    /// power of two up to kMostPassTokens for which a pass of twice as many tokens takes at most kAlmostFree times a
    /// pass of one.
    [[nodiscard]] std::int64_t pass_tokens() const { return pass_tokens_; }
    [[nodiscard]] std::int64_t context_tokens() const { return request_.context_tokens; }
    /// Returns true if a prompt reads the streamed weights once, false if it reads them once per prefill chunk of 512
    /// tokens.
    [[nodiscard]] bool prompts_read_weights_once() const {
        return least_ring_bytes_ > 0 || residency_.most_streamed_weights_bytes == 0;
    }
    /// Returns the request for a pass of `n_tokens` tokens after `text_tokens` committed ones; residency() was decided
    /// on the one for pass_tokens() and the full context.
    [[nodiscard]] ResidencyRequest residency_request(std::int64_t n_tokens, std::int64_t text_tokens) const;
    /// Predicts a pass of `n_tokens` tokens after `text_tokens` committed ones (at most the context), with this
    /// residency. Without `text_tokens`: at full context.
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens, std::int64_t text_tokens) const;
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens) const { return pass(n_tokens, request_.context_tokens); }

    /// Returns the bytes of all weight items, as they are packed.
    [[nodiscard]] std::size_t weights_bytes() const;
    /// Returns the bytes of the KV of all layers, at full context.
    [[nodiscard]] std::size_t kv_bytes() const;
    /// Returns [n_layers]: the slots of experts of each layer; empty if there are none.
    [[nodiscard]] std::vector<std::int32_t> expert_slots() const;
    /// Returns this plan, with the same placement, for a text that misses experts without slots `miss_factor` times as
    /// often as expected_hits() says.
    [[nodiscard]] ModelPlan with_miss_factor(double miss_factor) const;
    [[nodiscard]] double miss_factor() const { return miss_factor_; }
    /// Returns this plan, with the same placement, for a text that uses experts as earlier texts did: `counted` is
    /// [n_layers]. All layers that have slots must have counted hits, or none (CHECKed).
    [[nodiscard]] ModelPlan with_counted(std::vector<CountedExperts> counted) const;
    /// Returns what is counted of a layer; null if nothing is counted of any.
    [[nodiscard]] const CountedExperts* counted(std::int64_t layer) const {
        return counted_.empty() ? nullptr : &counted_.at(static_cast<std::size_t>(layer));
    }
    [[nodiscard]] ExpertMisses misses() const { return request_.misses; }
    /// Returns whether pass item `i` is in host memory, to be copied from there. Of KV: a part of it.
    [[nodiscard]] bool is_on_host(std::size_t i) const;
    /// Returns the bytes of pinned host memory for everything that streams: whole weight items, and the part of the KV
    /// that is not resident.
    [[nodiscard]] std::size_t pinned_bytes() const;

private:
    // Cuts items of at most `max_item_bytes` and decides what stays, with the largest ring that fits.
    void place(std::size_t max_item_bytes);
    // Whether residency_, whose ring has room for prompts by layers, is better than one with a small ring. A model
    // whose weights are all read by each pass always has such a ring. Of a mixture, the ring holds all experts of a
    // layer, and takes their room from weights that each pass reads, while of the experts that stream a pass reads few.
    // So what kPassesPerPrefillChunk passes lose must not exceed what a prefill chunk gains: one copy of all that
    // streams beside a small ring, and has no slot there.
    [[nodiscard]] bool is_ring_for_prompts_worth_it() const;
    // Sets what a pass is expected to copy and to take, after what is expected of experts has changed.
    void expect_anew();
    // Whether the copy of an expert can wait for copies of other weights.
    [[nodiscard]] bool experts_and_others_stream() const;

    ModelPlanRequest request_;
    std::vector<WeightItem> items_;
    std::vector<PassItem> pass_items_;
    std::int64_t pass_tokens_ = 1;
    double miss_factor_ = 1.0;
    std::vector<CountedExperts> counted_;  // [n_layers]; empty: a prior is expected
    std::size_t least_ring_bytes_ = 0;     // weights that the ring must hold at once; 0: two items are enough
    std::size_t least_kv_ring_bytes_ = 0;  // bytes needed in addition, if KV streams too
    ResidencyPlan residency_;
};

}  // namespace slipstream
