#include "runtime/plan/expert_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "runtime/plan/expert_bytes.h"
#include "runtime/plan/expert_misses.h"

namespace slipstream {

namespace {

/// Sums over the layers of all ranks.
struct Sums {
    std::int64_t n_resident = 0;  // experts that stay on their device
    double chosen = 0.0;          // experts that a token chooses
    double hits = 0.0;            // of those
};

// Adds the layer whose experts are the `choice.n_experts` items from `first` on. `n_slots`: of the layer; -1: its rank
// has none.
void add_layer(ExpertPlan& out, Sums& sums, const ModelPlan& rank, std::size_t first, std::int64_t n_slots,
               double miss_factor) {
    const ExpertChoice& choice = rank.pass_items()[first].choice;
    double hits = 0.0;
    const CountedExperts* counted = rank.counted(rank.pass_items()[first].layer);
    if (counted != nullptr && !counted->distinct.empty()) out.distinct_is_counted = true;
    if (n_slots >= 0) {
        const std::span<const double> counted_hits = counted != nullptr ? counted->hits : std::span<const double>();
        hits = expected_hits(choice, n_slots, miss_factor, counted_hits);
        out.hits_are_counted = out.hits_are_counted || !counted_hits.empty();
        out.n_slots += n_slots;
    } else {
        std::int64_t n_resident = 0;
        for (std::size_t i = first; i < first + static_cast<std::size_t>(choice.n_experts); ++i)
            if (rank.residency().resident_bytes[i] == rank.pass_items()[i].bytes) ++n_resident;
        hits = static_cast<double>(n_resident) / static_cast<double>(choice.n_experts);
        sums.n_resident += n_resident;
        n_slots = n_resident < choice.n_experts ? 0 : -1;
    }
    if (n_slots >= 0) {
        out.least_slots = std::min(out.least_slots, n_slots);
        out.most_slots = std::max(out.most_slots, n_slots);
        out.layer_experts = std::max(out.layer_experts, choice.n_experts);
    }
    out.n_experts += choice.n_experts;
    sums.chosen += static_cast<double>(choice.n_chosen);
    sums.hits += hits * static_cast<double>(choice.n_chosen);
}

}  // namespace

std::string_view expert_regime_name(ExpertRegime regime) {
    static constexpr std::array<std::string_view, 5> kNames{"experts fit", "experts in slots", "experts fixed",
                                                            "experts stream", "experts on the CPU"};
    return kNames[static_cast<std::size_t>(regime)];
}

namespace {

// Sums over the layers of all ranks. Misses are multiplied by `miss_factor`; no value: by that of the plan.
ExpertPlan summed_layers(const SplitPlan& plan, Sums& sums, std::optional<double> miss_factor) {
    ExpertPlan out{.least_slots = std::numeric_limits<std::int64_t>::max(), .slot_bytes = plan.sums().slot_bytes};
    for (const ModelPlan& rank : plan.ranks()) {
        const std::vector<PassItem>& items = rank.pass_items();
        const std::vector<std::int32_t> slots = rank.expert_slots();
        for (std::size_t i = 0; i < items.size();) {
            if (items[i].tag != PlanTag::OnDemand) {
                ++i;
                continue;
            }
            add_layer(out, sums, rank, i, slots.empty() ? -1 : slots[items[i].layer],
                      miss_factor.value_or(rank.miss_factor()));
            i += static_cast<std::size_t>(items[i].choice.n_experts);
        }
    }
    if (out.layer_experts == 0) out.least_slots = 0;
    if (out.n_experts > 0) out.hits = sums.hits / sums.chosen;
    return out;
}

}  // namespace

double expert_hits(const SplitPlan& plan, double miss_factor) {
    Sums sums;
    return summed_layers(plan, sums, miss_factor).hits;
}

ExpertPlan expert_plan(const SplitPlan& plan) {
    Sums sums;
    ExpertPlan out = summed_layers(plan, sums, std::nullopt);
    for (const ModelPlan& rank : plan.ranks()) {
        ResidencyRequest request = rank.residency_request(plan.pass_tokens(), rank.context_tokens());
        const auto of_experts = [&] { return copied_bytes(request, rank.residency().resident_bytes).on_demand; };
        const double copied = of_experts();
        out.copied_bytes += copied;
        request.copies_on_demand = true;
        out.cpu_bytes += of_experts() - copied;
    }
    out.regime = out.n_slots > 0                                  ? ExpertRegime::InSlots
                 : sums.n_resident == out.n_experts               ? ExpertRegime::Fit
                 : out.cpu_bytes > 0.0 && out.copied_bytes == 0.0 ? ExpertRegime::OnCpu
                 : sums.n_resident > 0                            ? ExpertRegime::Fixed
                                                                  : ExpertRegime::Stream;
    return out;
}

ExpertPlan resident_expert_plan(const ModelConfig& config, std::span<const CountedExperts> counted) {
    ExpertPlan out{.distinct_is_counted = distinct_is_counted(config, counted)};
    for (const LayerConfig& layer : config.layers) out.n_experts += layer.feed_forward.experts.n_experts;
    return out;
}

}  // namespace slipstream
