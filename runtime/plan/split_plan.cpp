#include "runtime/plan/split_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/ranks/model_split.h"

namespace slipstream {

namespace {

/// Returns the plan of one rank; if there are no shards, of the only device.
ModelPlan plan_rank(const SplitPlanRequest& request, std::size_t rank, std::int64_t pass_tokens) {
    const bool whole = request.shards.empty();
    const ModelConfig config = whole ? *request.config : shard_config(*request.config, request.shards[rank]);
    const ModelWeights weights =
        whole ? *request.weights : shard_weights(*request.weights, *request.config, request.shards[rank]);
    ModelPlanRequest of_rank = request.rank_request(rank, config, weights);
    of_rank.pass_tokens = pass_tokens;
    // While other devices compute, the link of this device copies the device's next layer into the free part of its
    // ring.
    of_rank.ring_layers = !whole && request.kind == SplitKind::Layers ? 2 : 1;
    try {
        return ModelPlan(of_rank);
    } catch (const OutOfBudget& error) {
        if (whole) throw;
        throw OutOfBudget(fmt::format("device {} of {}: {}", rank + 1, request.shards.size(), error.what()));
    }
}

/// Cost of a split: the time of a pass, and the time that all links together need for it.
struct SplitCost {
    double seconds = std::numeric_limits<double>::infinity();  // seconds of a pass; infinite: the split does not fit
    double link_seconds = 0.0;
    std::int64_t homeless_parts = 0;  // layers or kv heads of ranks on which they do not fit
};

// Returns the number of parts (layers or kv heads) that belong to ranks on which they do not fit.
std::int64_t homeless_parts(const SplitPlanRequest& request) {
    const std::vector<std::int64_t> parts = parts_of(request.kind, request.shards);
    std::int64_t n = 0;
    for (std::size_t rank = 0; rank < request.shards.size(); ++rank) {
        try {
            static_cast<void>(plan_rank(request, rank, 1));
        } catch (const OutOfBudget&) {
            n += parts[rank];
        }
    }
    return n;
}

// Returns the cost of the split with `parts` parts per rank.
SplitCost cost_of(const SplitPlanRequest& request, const std::vector<std::int64_t>& parts) {
    SplitPlanRequest asked = request;
    try {
        asked.shards = deal_parts(request.kind, *request.config, *request.weights, parts);
        const SplitPlan plan(asked);
        SplitCost cost{.seconds = plan.sums().pass_seconds};
        for (const ModelPlan& rank : plan.ranks()) {
            const ResidencyPlan& residency = rank.residency();
            if (residency.ring_bytes > 0)
                cost.link_seconds +=
                    static_cast<double>(residency.streamed_weights_bytes + residency.streamed_kv_bytes) /
                    rank.residency_request(1, kChunkTokens).link_bytes_per_second;
        }
        return cost;
    } catch (const OutOfBudget&) {
        return {.homeless_parts = homeless_parts(asked)};
    }
}

}  // namespace

SplitPlan::SplitPlan(const SplitPlanRequest& request)
    : kind_(request.kind), pass_tokens_(request.pass_tokens.value_or(1)) {
    place(request);
    if (!request.pass_tokens) {
        const double one = pass(1).seconds;
        while (2 * pass_tokens_ <= kMostPassTokens && pass(4 * pass_tokens_).seconds <= kAlmostFree * one)
            pass_tokens_ *= 2;
        if (pass_tokens_ > 1) place(request);
    }
    sum_up();
}

void SplitPlan::place(const SplitPlanRequest& request) {
    const bool whole = request.shards.empty();
    const std::size_t n_ranks = whole ? 1 : request.shards.size();
    ranks_.clear();
    layers_.clear();
    for (std::size_t rank = 0; rank < n_ranks; ++rank) {
        ranks_.push_back(plan_rank(request, rank, pass_tokens_));
        layers_.push_back(whole ? std::vector<std::int64_t>() : request.shards[rank].layers);
    }
    context_tokens_ = ranks_.front().context_tokens();
    order_.clear();
    if (kind_ == SplitKind::Layers) order_items(request);
}

// Sets the order of computing: the layers of the model, then all parts of the LM head.
void SplitPlan::order_items(const SplitPlanRequest& request) {
    std::vector<std::size_t> next(ranks_.size(), 0);  // item
    const auto take_layer = [&](std::size_t rank) {
        const std::vector<PassItem>& pass_items = ranks_[rank].pass_items();
        for (const std::int64_t layer = pass_items[next[rank]].layer;
             next[rank] < pass_items.size() && pass_items[next[rank]].layer == layer; ++next[rank])
            order_.push_back(static_cast<std::int32_t>(rank));
    };
    for (std::int64_t layer = 0; layer < request.config->n_layers(); ++layer) {
        std::size_t owner = 0;
        while (!request.shards.empty() && !std::ranges::binary_search(request.shards[owner].layers, layer)) ++owner;
        take_layer(owner);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) take_layer(rank);
}

// Predicts a tensor split: each rank as if alone, and takes the slowest. The ranks meet twice per layer; their rings
// bridge the waits. The request of a rank states its part of the host's memory bandwidth.
SimulatedPass SplitPlan::slowest_rank(std::int64_t n_tokens, std::int64_t text_tokens) const {
    SimulatedPass slowest;
    for (const ModelPlan& rank : ranks_) {
        const SimulatedPass pass = rank.pass(n_tokens, text_tokens);
        slowest.seconds = std::max(slowest.seconds, pass.seconds);
        slowest.link_busy_fraction = std::max(slowest.link_busy_fraction, pass.link_busy_fraction);
    }
    return slowest;
}

SimulatedPass SplitPlan::pass(std::int64_t n_tokens, std::int64_t text_tokens) const {
    if (kind_ == SplitKind::Tensor) return slowest_rank(n_tokens, text_tokens);
    std::vector<ResidencyRequest> requests;
    requests.reserve(ranks_.size());
    std::vector<SimulatedDevice> devices;
    for (const ModelPlan& rank : ranks_) {
        requests.push_back(rank.residency_request(n_tokens, text_tokens));
        devices.push_back({&requests.back(), &rank.residency().resident_bytes, rank.residency().ring_bytes});
    }
    return simulate_passes(devices, order_);
}

bool SplitPlan::prompts_read_weights_once() const {
    if (kind_ == SplitKind::Tensor && ranks_.size() > 1 && sums_.most_streamed_weights_bytes > 0) return false;
    return std::ranges::all_of(ranks_, &ModelPlan::prompts_read_weights_once);
}

SplitPlan SplitPlan::with_miss_factor(double miss_factor) const {
    SplitPlan plan = *this;
    if (miss_factor == ranks_.front().miss_factor()) return plan;
    for (ModelPlan& rank : plan.ranks_) rank = rank.with_miss_factor(miss_factor);
    plan.sums_ = {};
    plan.sum_up();
    return plan;
}

SplitPlan SplitPlan::with_counted(const std::vector<CountedExperts>& counted) const {
    if (counted.empty() && ranks_.front().counted(0) == nullptr) return *this;
    std::vector<std::vector<CountedExperts>> of_ranks;
    bool has_hits = true;
    bool has_distinct = true;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const std::vector<std::int32_t> slots = ranks_[rank].expert_slots();
        const std::vector<PassItem>& items = ranks_[rank].pass_items();
        std::vector<CountedExperts>& of_rank = of_ranks.emplace_back(static_cast<std::size_t>(items.back().layer));
        for (std::size_t i = 0; i < of_rank.size(); ++i) {
            const auto layer = layers_[rank].empty() ? i : static_cast<std::size_t>(layers_[rank][i]);
            if (layer < counted.size()) of_rank[i] = counted[layer];
            if (!slots.empty() && slots[i] > 0 && of_rank[i].hits.empty()) has_hits = false;
        }
        for (const PassItem& item : items)
            if (item.tag == PlanTag::OnDemand && of_rank[item.layer].distinct.empty()) has_distinct = false;
    }
    SplitPlan plan = *this;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (CountedExperts& layer : of_ranks[rank]) {
            if (!has_hits) layer.hits.clear();
            if (!has_distinct) layer.distinct.clear();
        }
        plan.ranks_[rank] = ranks_[rank].with_counted(std::move(of_ranks[rank]));
    }
    plan.sums_ = {};
    plan.sum_up();
    return plan;
}

void SplitPlan::sum_up() {
    for (const ModelPlan& rank : ranks_) {
        const ResidencyPlan& plan = rank.residency();
        sums_.ring_bytes += plan.ring_bytes;
        sums_.device_bytes += plan.device_bytes;
        sums_.resident_weights_bytes += plan.resident_weights_bytes;
        sums_.slot_bytes += plan.slot_bytes;
        sums_.resident_kv_bytes += plan.resident_kv_bytes;
        sums_.streamed_weights_bytes += plan.streamed_weights_bytes;
        sums_.most_streamed_weights_bytes += plan.most_streamed_weights_bytes;
        sums_.in_place_bytes += plan.in_place_bytes;
        sums_.streamed_kv_bytes += plan.streamed_kv_bytes;
    }
    const SimulatedPass pass_of_plan = pass(pass_tokens_);
    sums_.pass_seconds = pass_of_plan.seconds;
    sums_.link_busy_fraction = pass_of_plan.link_busy_fraction;
    sums_.regime = regime_of({.weights_stream = sums_.most_streamed_weights_bytes > 0,
                              .kv_streams = sums_.streamed_kv_bytes > 0,
                              .in_host_memory = sums_.in_place_bytes > 0});
}

namespace {

/// Searches a split, from a first one on: moves parts between devices, many at once first.
class SplitSearch {
public:
    SplitSearch(const SplitPlanRequest& request, std::vector<std::int64_t> first)
        : request_(request), best_(std::move(first)), cost_(cost_of(request, best_)), least_seconds_(cost_.seconds) {}

    /// Makes moves that shorten a pass by the fraction `gain`. If `plateau` > 0, also moves after which a pass takes at
    /// most that fraction longer than the shortest one found, if the links together then carry less by `gain`: when
    /// several devices delay a pass, no single move shortens it.
    void improve(double gain, double plateau) {
        const std::int64_t together = parts_together(request_.kind, *request_.config, *request_.weights);
        const std::int64_t n = n_parts(request_.kind, *request_.config) / together;
        for (std::int64_t step = std::max<std::int64_t>(n / 4, 1); step > 0;)
            if (!move(step * together, gain, plateau)) step /= 2;
    }

    [[nodiscard]] const std::vector<std::int64_t>& best() const { return best_; }
    [[nodiscard]] bool fits() const { return cost_.seconds < std::numeric_limits<double>::infinity(); }

private:
    // Moves `step` parts (layers or kv heads) from one device to another, by the best such move. A move is good enough
    // if it shortens the pass by the fraction `gain`; or, with `plateau` > 0, if the pass is at most the fraction
    // `plateau` longer than the shortest one found and the links together carry less by `gain`; or if fewer parts are
    // left that fit nowhere. It is never made if more parts fit nowhere after it. Returns false, and changes no split,
    // if there is none.
    bool move(std::int64_t step, double gain, double plateau) {
        std::vector<std::int64_t> found = best_;
        SplitCost found_cost = cost_;
        for (std::size_t from = 0; from < best_.size(); ++from) {
            for (std::size_t to = 0; to < best_.size(); ++to) {
                if (from == to || best_[from] <= step) continue;
                std::vector<std::int64_t> moved = best_;
                moved[from] -= step;
                moved[to] += step;
                const SplitCost cost = cost_of(request_, moved);
                // Updated with each split tried, not only with those taken: a lighter split may otherwise follow a
                // shorter one within one search of moves, and the search would go round in circles.
                least_seconds_ = std::min(least_seconds_, cost.seconds);
                const bool shorter = cost.seconds < found_cost.seconds * (1.0 - gain);
                const bool lighter = plateau > 0.0 && cost.seconds <= least_seconds_ * (1.0 + plateau) &&
                                     cost.link_seconds < found_cost.link_seconds * (1.0 - gain);
                // First reduces the parts that do not fit, and never increases them.
                const bool roomier = cost.homeless_parts < found_cost.homeless_parts;
                if (cost.homeless_parts > found_cost.homeless_parts || !(roomier || shorter || lighter)) continue;
                found = moved;
                found_cost = cost;
            }
        }
        if (found == best_) return false;
        best_ = found;
        cost_ = found_cost;
        return true;
    }

    const SplitPlanRequest& request_;
    std::vector<std::int64_t> best_;
    SplitCost cost_;
    double least_seconds_;  // shortest pass of all splits tried
};

}  // namespace

std::vector<std::int64_t> choose_parts(const SplitPlanRequest& request, std::size_t n_ranks) {
    const ModelConfig& config = *request.config;
    const std::int64_t n = n_parts(request.kind, config);
    if (n < static_cast<std::int64_t>(n_ranks))
        throw Unsupported(
            fmt::format("{} {}s cannot be shared among {} devices; name fewer", n, part_name(request.kind), n_ranks));
    SplitSearch search(request, even_parts(request.kind, config, *request.weights, n_ranks));
    search.improve(0.01, 0.01);
    search.improve(0.001, 0.0);
    if (!search.fits()) {  // throws the error that says what is missing
        SplitPlanRequest asked = request;
        asked.shards = deal_parts(request.kind, config, *request.weights, search.best());
        static_cast<void>(SplitPlan(asked));
    }
    return search.best();
}

}  // namespace slipstream
