#include "runtime/plan/split_plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/ranks/layer_split.h"

namespace slipstream {

namespace {

// What counts as a difference between two splits; below, it is rounding.
constexpr double kGain = 1e-3;

/// What a split takes: a pass, and what all links carry for it.
struct SplitCost {
    double seconds = std::numeric_limits<double>::infinity();  // where it does not fit
    double link_seconds = 0.0;

    /// Where a pass takes the same, the one that streams less is better: it may be a step to one whose passes are
    /// shorter, where several devices hold a pass up.
    [[nodiscard]] bool better_than(const SplitCost& other) const {
        if (seconds < other.seconds * (1.0 - kGain)) return true;
        return seconds <= other.seconds && link_seconds < other.link_seconds * (1.0 - kGain);
    }
};

SplitCost cost_of(const SplitPlanRequest& request, const std::vector<std::int64_t>& layers) {
    SplitPlanRequest asked = request;
    asked.shares = deal_layers(*request.config, layers);
    try {
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
        return {};
    }
}

}  // namespace

SplitPlan::SplitPlan(const SplitPlanRequest& request) : pass_tokens_(request.pass_tokens.value_or(1)) {
    place(request);
    if (!request.pass_tokens) {
        const double one = pass(1).seconds;
        while (2 * pass_tokens_ <= kMostPassTokens && pass(4 * pass_tokens_).seconds <= kRidingAlong * one)
            pass_tokens_ *= 2;
        if (pass_tokens_ > 1) place(request);
    }
    sum_up();
}

void SplitPlan::place(const SplitPlanRequest& request) {
    const bool whole = request.shares.empty();
    const std::size_t n_ranks = whole ? 1 : request.shares.size();
    ranks_.clear();
    order_.clear();
    for (std::size_t rank = 0; rank < n_ranks; ++rank) {
        const ModelConfig config = whole ? *request.config : share_config(*request.config, request.shares[rank]);
        const ModelWeights weights =
            whole ? *request.weights : share_weights(*request.weights, *request.config, request.shares[rank]);
        ModelPlanRequest of_rank = request.rank_request(rank, config, weights);
        of_rank.pass_tokens = pass_tokens_;
        // While others compute its link goes on: as far as there is room for what comes next.
        of_rank.ring_layers = whole ? 1 : 2;
        context_tokens_ = of_rank.context_tokens;
        try {
            ranks_.emplace_back(of_rank);
        } catch (const OutOfBudget& error) {
            if (whole) throw;
            throw OutOfBudget(fmt::format("device {} of {}: {}", rank + 1, n_ranks, error.what()));
        }
    }
    // Whose turn it is: the layers of the model in order, then all parts of the LM head.
    std::vector<std::size_t> next(n_ranks, 0);  // block
    const auto take_layer = [&](std::size_t rank) {
        const std::vector<PassBlock>& blocks = ranks_[rank].blocks();
        for (const std::int64_t layer = blocks[next[rank]].layer;
             next[rank] < blocks.size() && blocks[next[rank]].layer == layer; ++next[rank])
            order_.push_back(static_cast<std::int32_t>(rank));
    };
    for (std::int64_t layer = 0; layer < request.config->n_layers; ++layer) {
        std::size_t owner = 0;
        while (!whole && !std::ranges::binary_search(request.shares[owner].layers, layer)) ++owner;
        take_layer(owner);
    }
    for (std::size_t rank = 0; rank < n_ranks; ++rank) take_layer(rank);
}

SimulatedPass SplitPlan::pass(std::int64_t n_tokens, std::int64_t text_tokens) const {
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
    return std::ranges::all_of(ranks_, &ModelPlan::prompts_read_weights_once);
}

void SplitPlan::sum_up() {
    for (const ModelPlan& rank : ranks_) {
        const ResidencyPlan& plan = rank.residency();
        sums_.ring_bytes += plan.ring_bytes;
        sums_.device_bytes += plan.device_bytes;
        sums_.resident_weights_bytes += plan.resident_weights_bytes;
        sums_.resident_kv_bytes += plan.resident_kv_bytes;
        sums_.streamed_weights_bytes += plan.streamed_weights_bytes;
        sums_.streamed_kv_bytes += plan.streamed_kv_bytes;
    }
    const SimulatedPass pass_of_plan = pass(pass_tokens_);
    sums_.pass_seconds = pass_of_plan.seconds;
    sums_.link_busy_fraction = pass_of_plan.link_busy_fraction;
    const bool kv = sums_.streamed_kv_bytes > 0;
    const bool weights = sums_.streamed_weights_bytes > 0;
    sums_.regime = kv        ? weights ? Regime::BothStream : Regime::KvStreams
                   : weights ? Regime::WeightsStream
                             : Regime::AllFits;
}

std::vector<std::int64_t> choose_layers(const SplitPlanRequest& request, std::size_t n_ranks) {
    const std::int64_t n_layers = request.config->n_layers;
    if (n_layers < static_cast<std::int64_t>(n_ranks))
        throw Unsupported(fmt::format("{} layers cannot be shared among {} devices; name fewer", n_layers, n_ranks));
    std::vector<std::int64_t> best = layers_by_share(n_layers, std::vector<double>(n_ranks, 1.0));
    SplitCost best_cost = cost_of(request, best);
    // Large steps first: where the even split does not fit, or lies far off, single layers gain nothing.
    for (std::int64_t step = std::max<std::int64_t>(n_layers / 4, 1); step > 0;) {
        std::vector<std::int64_t> found = best;
        SplitCost found_cost = best_cost;
        for (std::size_t from = 0; from < n_ranks; ++from) {
            for (std::size_t to = 0; to < n_ranks; ++to) {
                if (from == to || best[from] <= step) continue;
                std::vector<std::int64_t> moved = best;
                moved[from] -= step;
                moved[to] += step;
                const SplitCost cost = cost_of(request, moved);
                if (!cost.better_than(found_cost)) continue;
                found = moved;
                found_cost = cost;
            }
        }
        if (found == best) step /= 2;
        best = found;
        best_cost = found_cost;
    }
    if (best_cost.seconds == std::numeric_limits<double>::infinity()) {  // says what is missing
        SplitPlanRequest asked = request;
        asked.shares = deal_layers(*request.config, best);
        static_cast<void>(SplitPlan(asked));
    }
    return best;
}

}  // namespace slipstream
