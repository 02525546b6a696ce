#include "runtime/plan/model_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "offload/ring_parts.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/pass/prompt_kv_by_chunk.h"

namespace slipstream {

ModelPlan::ModelPlan(const ModelPlanRequest& request) : request_(request) {
    CHECK(request.config != nullptr && request.weights != nullptr);
    pass_tokens_ = request.pass_tokens.value_or(1);
    const std::size_t limit = request.max_item_bytes > 0 ? request.max_item_bytes : item_limit(request.budget_bytes);
    try {
        place(limit);
    } catch (const OutOfBudget&) {
        // Small items need a small ring. The error of this attempt names a budget that is enough, although with a
        // larger budget the items are larger.
        if (request.max_item_bytes > 0 || limit == kMinItemBytes) throw;
        place(kMinItemBytes);
    }
    if (request.max_item_bytes == 0 && request_.max_item_bytes > kMostBytesBesideDemand && experts_and_others_stream())
        place(kMostBytesBesideDemand);
    request_.config = nullptr;  // only place() reads it
    request_.weights = nullptr;
    if (request.pass_tokens) return;
    const double one = pass(1).seconds;
    while (2 * pass_tokens_ <= kMostPassTokens && pass(4 * pass_tokens_).seconds <= kAlmostFree * one)
        pass_tokens_ *= 2;
    if (pass_tokens_ > 1) residency_ = plan_residency(residency_request(pass_tokens_, request_.context_tokens));
}

void ModelPlan::place(std::size_t max_item_bytes) {
    request_.max_item_bytes = max_item_bytes;
    items_ = cut_weight_items(*request_.weights, request_.rounding, max_item_bytes);
    pass_items_ = make_pass_items({.config = request_.config,
                                   .weights = request_.weights,
                                   .items = items_,
                                   .kv_dtype = request_.kv_dtype,
                                   .context_tokens = request_.context_tokens});
    least_kv_ring_bytes_ = 0;
    for (const PassItem& pass_item : pass_items_)
        if (pass_item.tag == PlanTag::Kv)
            least_kv_ring_bytes_ =
                std::max(least_kv_ring_bytes_, PromptKvByChunk::least_bytes(pass_item.unit_bytes, kPrefillChunkTokens));
    for (std::int64_t n_layers = request_.ring_layers; n_layers > 0; --n_layers) {
        least_ring_bytes_ = least_ring_bytes(pass_items_, n_layers, request_.misses);
        try {
            residency_ = plan_residency(residency_request(pass_tokens_, request_.context_tokens));
        } catch (const OutOfBudget&) {
            continue;
        }
        if (is_ring_for_prompts_worth_it()) return;
    }
    // A ring for two items is enough for passes; prompts then read the weights once per prefill chunk.
    least_ring_bytes_ = 0;
    least_kv_ring_bytes_ = 0;
    residency_ = plan_residency(residency_request(pass_tokens_, request_.context_tokens));
}

bool ModelPlan::is_ring_for_prompts_worth_it() const {
    if (residency_.streamed_weights_bytes == residency_.most_streamed_weights_bytes) return true;
    ResidencyRequest request = residency_request(pass_tokens_, request_.context_tokens);
    request.least_ring_bytes = request.least_kv_ring_bytes = 0;
    const ResidencyPlan small = plan_residency(request);
    const double lost = residency_.pass_seconds - small.pass_seconds;
    return lost * kPassesPerPrefillChunk * request_.speed.link_bytes_per_second <=
           static_cast<double>(small.most_streamed_weights_bytes - small.slot_bytes);
}

bool ModelPlan::experts_and_others_stream() const {
    const auto streams = [&](PlanTag tag) {
        for (std::size_t i = 0; i < pass_items_.size(); ++i)
            if (pass_items_[i].tag == tag && residency_.resident_bytes[i] < pass_items_[i].bytes) return true;
        return false;
    };
    return request_.misses != ExpertMisses::Cpu && streams(PlanTag::OnDemand) && streams(PlanTag::Weights);
}

ResidencyRequest ModelPlan::residency_request(std::int64_t n_tokens, std::int64_t text_tokens) const {
    return {.schedule = plan_schedule(
                pass_items_, request_.speed.rates,
                {.n_tokens = n_tokens,
                 .text_tokens = text_tokens < request_.context_tokens ? text_tokens
                                                                      : round_up(request_.context_tokens, kChunkTokens),
                 .miss_factor = miss_factor_,
                 .counted = counted_}),
            .budget_bytes = request_.budget_bytes,
            .fixed_bytes = request_.fixed_bytes,
            .streaming_bytes = request_.streaming_bytes,
            .kv_streaming_bytes = request_.kv_tail_bytes,
            .ring_bytes = request_.ring_bytes,
            .least_ring_bytes = least_ring_bytes_,
            .least_kv_ring_bytes = least_kv_ring_bytes_,
            .link_bytes_per_second = request_.speed.link_bytes_per_second,
            .memory_bytes_per_second = request_.speed.memory_bytes_per_second,
            .host_bytes_per_copied_byte = request_.speed.host_bytes_per_copied_byte,
            .weights_stay = request_.weights_stay,
            .has_slots = !request_.fixed_experts && request_.misses != ExpertMisses::Cpu,
            .copies_on_demand = request_.misses != ExpertMisses::Cpu,
            .fixed_seconds = request_.fixed_seconds + request_.speed.rates.pass_seconds};
}

SimulatedPass ModelPlan::pass(std::int64_t n_tokens, std::int64_t text_tokens) const {
    return simulate_passes(residency_request(n_tokens, text_tokens), residency_.resident_bytes, residency_.ring_bytes);
}

ModelPlan ModelPlan::with_miss_factor(double miss_factor) const {
    ModelPlan plan = *this;
    plan.miss_factor_ = miss_factor;
    plan.expect_anew();
    return plan;
}

ModelPlan ModelPlan::with_counted(std::vector<CountedExperts> counted) const {
    const auto n_layers = static_cast<std::size_t>(pass_items_.back().layer);
    CHECK(counted.size() == n_layers, "experts of {} layers are counted, the plan has {}", counted.size(), n_layers);
    const std::vector<std::int32_t> slots = expert_slots();
    std::optional<bool> has_hits;
    for (std::size_t layer = 0; layer < slots.size(); ++layer) {
        if (slots[layer] == 0) continue;
        const bool has = !counted[layer].hits.empty();
        CHECK(has == has_hits.value_or(has), "hits of some layers are counted, and not of layer {}", layer);
        has_hits = has;
    }
    ModelPlan plan = *this;
    plan.counted_ = std::move(counted);
    plan.expect_anew();
    return plan;
}

void ModelPlan::expect_anew() {
    const CopiedBytes copied =
        copied_bytes(residency_request(pass_tokens_, request_.context_tokens), residency_.resident_bytes);
    const SimulatedPass expected = pass(pass_tokens_);
    residency_.streamed_weights_bytes = static_cast<std::size_t>(std::llround(copied.weights + copied.on_demand));
    residency_.pass_seconds = expected.seconds;
    residency_.link_busy_fraction = expected.link_busy_fraction;
}

std::size_t ModelPlan::weights_bytes() const {
    std::size_t bytes = 0;
    for (const WeightItem& item : items_) bytes += item.bytes;
    return bytes;
}

std::size_t ModelPlan::kv_bytes() const {
    std::size_t bytes = 0;
    for (const PassItem& pass_item : pass_items_)
        if (pass_item.tag == PlanTag::Kv) bytes += pass_item.bytes;
    return bytes;
}

std::vector<std::int32_t> ModelPlan::expert_slots() const {
    std::vector<std::int32_t> slots;
    if (residency_.slots.empty()) return slots;
    slots.resize(static_cast<std::size_t>(pass_items_.back().layer));
    std::size_t run = 0;
    for (std::size_t i = 0; i < pass_items_.size(); ++i)
        if (pass_items_[i].tag == PlanTag::OnDemand && (i == 0 || pass_items_[i - 1].tag != PlanTag::OnDemand))
            slots[pass_items_[i].layer] = residency_.slots.at(run++);
    return slots;
}

bool ModelPlan::is_on_host(std::size_t i) const {
    const bool has_slots = pass_items_[i].tag == PlanTag::OnDemand && !residency_.slots.empty();
    return has_slots || residency_.resident_bytes[i] < pass_items_[i].bytes;
}

std::size_t ModelPlan::pinned_bytes() const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < pass_items_.size(); ++i) {
        const PassItem& pass_item = pass_items_[i];
        if (is_on_host(i))
            bytes += pass_item.tag == PlanTag::Kv ? pass_item.bytes - residency_.resident_bytes[i] : pass_item.bytes;
    }
    return bytes;
}

}  // namespace slipstream
