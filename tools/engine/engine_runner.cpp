#include "tools/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/rank_sums.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/plan/split_plan.h"

namespace slipstream::tools {

namespace {

// Returns the time after which a rank counts as lost: a rank may have to wait for all that another's pass streams.
std::chrono::nanoseconds rank_is_lost_after(const LoadedModel& model) {
    std::chrono::nanoseconds longest = kRankIsLost;
    for (std::size_t i = 0; model.plan() && i < model.devices().size(); ++i) {
        const ResidencyPlan& plan = model.plan()->ranks()[i].residency();
        longest =
            std::max(longest, slipstream::rank_is_lost_after(plan.most_streamed_weights_bytes + plan.streamed_kv_bytes,
                                                             model.devices()[i].throttled_link_bytes_per_second));
    }
    return longest;
}

std::unique_ptr<RankSums> make_sums(const LoadedModel& model, const RunNeeds& needs, const EngineCallbacks& callbacks) {
    std::vector<Device*> devices;
    for (const EngineDevice& each : model.devices()) devices.push_back(each.device.get());
    ChosenSums chosen = choose_rank_sums(devices, sum_bytes(model.config(), needs), rank_is_lost_after(model));
    callbacks.detail(fmt::format("sums between the devices: {}", chosen.way));
    if (!chosen.trouble.empty()) callbacks.note(chosen.trouble);
    return std::move(chosen.sums);
}

}  // namespace

std::unique_ptr<ModelRunner> make_runner(const LoadedModel& model, const RunNeeds& needs,
                                         const EngineCallbacks& callbacks) {
    CHECK(needs.n_sequences == 1, "the plan counts the KV of one sequence");
    RunnerNeeds of_runner = needs;
    if (of_runner.text_tokens == 0) of_runner.text_tokens = model.context_tokens();
    std::vector<RunnerShard> shards;
    for (std::size_t i = 0; i < model.devices().size(); ++i) {
        RunnerShard& shard = shards.emplace_back(RunnerShard{
            .model = model.models()[i].get(), .kv = model.kv_placement(i), .ring_bytes = model.ring_bytes(i)});
        if (model.plan() != nullptr) {
            shard.expert_slots = model.plan()->ranks()[i].expert_slots();
            shard.misses.misses = model.plan()->ranks()[i].misses();
        }
        if (model.devices().size() == 1) break;
        shard.layers = model.shards()[i].layers;
        shard.first_vocab = model.shards()[i].first_vocab;
    }
    auto runner = std::make_unique<ModelRunner>(shards, of_runner, model.arena(),
                                                model.shards_matrices() ? make_sums(model, needs, callbacks) : nullptr);
    model.report_lock_refusal();
    return runner;
}

}  // namespace slipstream::tools
