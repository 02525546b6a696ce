#include "runtime/plan/pass_items.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/pack_weights.h"
#include "offload/ring_parts.h"
#include "offload/transfer_ring.h"
#include "runtime/cache/kv_ring.h"

namespace slipstream {

namespace {

constexpr std::size_t kMaxItemBytes = std::size_t{64} << 20;  // most bytes of a weight item
constexpr std::size_t kItemsInBudget = 16;   // a weight item is at most this fraction (1 / 16) of the budget
constexpr std::size_t kSlotAlignBytes = 64;  // alignment of items in the ring, in bytes

PassItem kv_item(const PassItemRequest& request, std::int64_t layer) {
    const ModelConfig& config = *request.config;
    if (!config.layers[layer].has_attention()) {
        const DeltaNetShape& state = config.delta_net(layer).shape;
        return {.tag = PlanTag::Kv,
                .layer = layer,
                .unit_bytes = 1,
                .transfer_bytes = 1,
                .state_bytes = static_cast<std::size_t>(state.state_floats()) * sizeof(float)};
    }
    const std::size_t chunk = config.kv_layout(layer, request.kv_dtype).chunk_bytes();
    const std::int64_t n_chunks = ceil_div(request.context_tokens, kChunkTokens);
    const std::size_t extent = static_cast<std::size_t>(kChunksPerExtent) * chunk;
    PassItem pass_item{.tag = PlanTag::Kv,
                       .layer = layer,
                       .bytes = static_cast<std::size_t>(kept_chunks(config.window(layer), n_chunks)) * chunk,
                       .unit_bytes = chunk,
                       .transfer_bytes = config.has_experts()
                                             ? std::min(extent, std::max(chunk, kMostBytesBesideDemand / chunk * chunk))
                                             : extent,
                       .queries_per_kv_head = config.attention(layer).queries_per_kv_head()};
    // A window that begins inside a KV chunk reads one chunk more than its length. A ring keeps more than that, so no
    // plan makes a part of a ring resident.
    const std::int64_t shown = ceil_div(std::min(config.window(layer), n_chunks * kChunkTokens), kChunkTokens) + 1;
    if (config.window(layer) > 0 && shown < n_chunks) pass_item.window_bytes = static_cast<std::size_t>(shown) * chunk;
    return pass_item;
}

PassItem weight_item(const PassItemRequest& request, std::size_t index) {
    const WeightItem& item = request.items[index];
    PassItem pass_item{.tag = PlanTag::Weights,
                       .layer = item.layer,
                       .weight_item = static_cast<std::int64_t>(index),
                       .bytes = item.bytes,
                       .unit_bytes = item.bytes,
                       .transfer_bytes = item.bytes};
    if (item.expert != kNoExpert) {
        const ExpertsConfig& experts = request.config->experts(item.layer);
        pass_item.tag = PlanTag::OnDemand;
        pass_item.choice = {.n_experts = experts.n_experts, .n_chosen = experts.n_chosen};
    }
    for (const WeightPart& part : item.parts) {
        const ConstTensorView& matrix = request.weights->tensor(part.layer, part.role, part.expert);
        const DType dtype = packed_type(matrix, item.rounding);
        pass_item.parts.push_back({dtype, packed_bytes(dtype, part.n_rows, matrix.cols())});
    }
    return pass_item;
}

/// What a pass is expected to do with an item.
struct ItemUse {
    double read_share = 1.0;  // as PlanItem has it
    double slot_saves = 1.0;
    double vectors = 0.0;  // tokens that the item is multiplied with if it is read
};

/// Expected use of the items of one schedule, computed once for neighbouring layers that are alike.
class ItemUses {
public:
    explicit ItemUses(const PassLoad& load) : load_(load) {}

    /// Returns the use of the next item of the schedule.
    ItemUse next(const PassItem& item) {
        const auto n_tokens = static_cast<double>(load_.n_tokens);
        if (item.tag != PlanTag::OnDemand) {
            n_before_ = 0;
            return {.vectors = n_tokens};
        }
        if (misses_.empty() || choice_ != item.choice || (!load_.counted.empty() && n_before_ == 0)) {
            static const CountedExperts kNone;
            choice_ = item.choice;
            misses_ = expected_misses(choice_, n_tokens, load_.miss_factor,
                                      load_.counted.empty() ? kNone : load_.counted[item.layer]);
        }
        CHECK(n_before_ < choice_.n_experts, "more than {} experts in a layer", choice_.n_experts);
        const auto slot = static_cast<std::size_t>(n_before_++);
        const double n_distinct = misses_.front();
        return {.read_share = n_distinct / static_cast<double>(choice_.n_experts),
                .slot_saves = misses_[slot] - misses_[slot + 1],
                .vectors = n_tokens * static_cast<double>(choice_.n_chosen) / n_distinct};
    }

private:
    PassLoad load_;
    ExpertChoice choice_{};
    std::vector<double> misses_;  // expected_misses() of choice_
    std::int64_t n_before_ = 0;   // experts of the layer that were asked about
};

}  // namespace

std::size_t kv_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t context_tokens) {
    CHECK(context_tokens >= 0, "KV of {} tokens", context_tokens);
    const std::int64_t n_chunks = context_tokens / kChunkTokens + (context_tokens % kChunkTokens > 0 ? 1 : 0);
    std::size_t all = 0;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const auto of_layer = checked_mul(config.kv_layout(layer, kv_dtype).chunk_bytes(),
                                          static_cast<std::size_t>(kept_chunks(config.window(layer), n_chunks)));
        all += std::min(of_layer.value_or(kMaxKvBytes), kMaxKvBytes - all);  // at most kMaxKvBytes
    }
    return all;
}

std::vector<PassItem> make_pass_items(const PassItemRequest& request) {
    CHECK(request.config != nullptr && request.weights != nullptr && request.context_tokens > 0);
    std::vector<PassItem> items;
    for_each_read(
        request.items, request.config->n_layers(), [&](std::size_t i) { items.push_back(weight_item(request, i)); },
        [&](std::int64_t layer) { items.push_back(kv_item(request, layer)); });
    return items;
}

std::vector<PlanItem> plan_schedule(std::span<const PassItem> items, const PassRates& rates, const PassLoad& load) {
    std::vector<PlanItem> schedule;
    schedule.reserve(items.size());
    const auto tokens = static_cast<double>(load.n_tokens);
    const auto n_chunks = static_cast<std::size_t>(load.text_tokens / kChunkTokens);
    ItemUses uses(load);
    for (const PassItem& pass_item : items) {
        PlanItem item{.tag = pass_item.tag,
                      .bytes = pass_item.bytes,
                      .unit_bytes = pass_item.unit_bytes,
                      .transfer_bytes = pass_item.transfer_bytes};
        if (pass_item.tag == PlanTag::Kv) {
            if (n_chunks < pass_item.bytes / pass_item.unit_bytes) item.bytes = n_chunks * pass_item.unit_bytes;
            if (pass_item.window_bytes > 0 && pass_item.window_bytes < item.bytes)
                item.read_bytes = pass_item.window_bytes;
            // A state is read and written once in a pass.
            const auto read = static_cast<double>(item.read_bytes > 0 ? item.read_bytes : item.bytes) +
                              2.0 * static_cast<double>(pass_item.state_bytes);
            const double vectors = tokens * static_cast<double>(pass_item.queries_per_kv_head);
            item.compute_seconds =
                read * rates.kv.seconds(vectors) + rates.layer_seconds + tokens * rates.layer_token_seconds;
        }
        const ItemUse use = uses.next(pass_item);
        item.read_share = use.read_share;
        item.slot_saves = use.slot_saves;
        for (const PassItem::Part& part : pass_item.parts)
            item.compute_seconds += use.read_share * static_cast<double>(part.bytes) *
                                    rates.weights[static_cast<std::size_t>(part.dtype)].seconds(use.vectors);
        item.host_bytes = item.compute_seconds * rates.host_bytes_per_second;
        schedule.push_back(item);
    }
    return schedule;
}

std::size_t least_ring_bytes(std::span<const PassItem> items, std::int64_t n_layers, ExpertMisses misses) {
    std::size_t largest = 0;       // bytes of the largest item in the ring
    std::size_t largest_item = 0;  // bytes of the largest weight item of a layer
    std::size_t layer_bytes = 0;
    std::size_t most = 0;
    std::int64_t layer = -1;
    for (const PassItem& pass_item : items) {
        if (pass_item.tag == PlanTag::OnDemand && misses == ExpertMisses::Cpu) continue;
        const std::size_t slot = round_up(std::min(pass_item.unit_bytes, pass_item.bytes), kSlotAlignBytes);
        largest = std::max(largest, slot);
        if (pass_item.layer != layer) layer_bytes = 0;
        layer = pass_item.layer;
        // The LM head, the last item, does not count as a layer: a prompt needs it once, at its end.
        if (pass_item.tag != PlanTag::Kv && pass_item.layer != items.back().layer) {
            layer_bytes += slot;
            largest_item = std::max(largest_item, slot);
        }
        most = std::max(most, layer_bytes);
    }
    return std::max(2 * largest,
                    TransferRing::region_bytes_for_run(static_cast<std::size_t>(n_layers) * most, largest_item));
}

std::size_t item_limit(std::size_t budget_bytes) {
    return std::clamp(budget_bytes / kItemsInBudget, kMinItemBytes, kMaxItemBytes);
}

}  // namespace slipstream
