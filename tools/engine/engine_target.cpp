#include "tools/engine/engine_target.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"

namespace slipstream::tools {

EngineTarget::Part::Part(const LoadedModel& loaded, std::size_t device, const RunNeeds& needs, Collective* collective)
    : cache(*loaded.devices()[device].device, loaded.models()[device]->kv_shape(),
            loaded.models()[device]->config().n_layers,
            needs.text_tokens > 0 ? needs.text_tokens : loaded.context_tokens(), needs.scratch_nodes,
            loaded.kv_placement(device)) {
    const Model& model = *loaded.models()[device];
    const PassReads reads{&model, &cache};
    if (reads.streams())
        pass = std::make_unique<PassStream>(std::vector{reads}, *loaded.arena(), loaded.ring_bytes(device));
    forward = std::make_unique<Forward>(model, needs.forward, pass.get(), collective);
    if (needs.check_tokens > 0)
        plain = std::make_unique<Forward>(model, check_forward_limits(needs.check_tokens), pass.get(), collective);
}

EngineTarget::EngineTarget(const LoadedModel& model, const RunNeeds& needs, const EngineCallbacks& callbacks)
    : model_(&model), callbacks_(callbacks) {
    if (model.shards_matrices()) make_sums(needs);
    for (std::size_t device = 0; device < model.devices().size(); ++device)
        parts_.push_back(std::make_unique<Part>(model, device, needs, sums_ ? &sums_->rank(device) : nullptr));
    report_lock_refusal();
    target_ = target_of(&Part::forward);
    sequence_.emplace(*target_);
    if (needs.check_tokens > 0) plain_ = target_of(&Part::plain);
    if (needs.view) make_views(*needs.view);
}

EngineTarget::PartView::PartView(const Model& model, KvCache& cache, const ViewNeeds& needs)
    : view(model.device(), model.kv_shape(), model.config().n_layers, needs.room()),
      builder(model.device(), cache, view, model.config(), needs.options) {}

void EngineTarget::make_views(const ViewNeeds& needs) {
    std::vector<KvView*> views;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        views_.push_back(std::make_unique<PartView>(*model_->models()[i], parts_[i]->cache, needs));
        views.push_back(&views_.back()->view);
    }
    view_passes_ = std::make_unique<ViewPasses>(ranks_of(&Part::forward), std::move(views));
}

// A rank may have to wait for all that its pass streams.
std::chrono::nanoseconds EngineTarget::rank_is_lost_after() const {
    std::chrono::nanoseconds longest = kRankIsLost;
    for (std::size_t i = 0; model_->plan() && i < model_->devices().size(); ++i) {
        const ResidencyPlan& plan = model_->plan()->ranks()[i].residency();
        longest =
            std::max(longest, slipstream::rank_is_lost_after(plan.streamed_weights_bytes + plan.streamed_kv_bytes,
                                                             model_->devices()[i].throttled_link_bytes_per_second));
    }
    return longest;
}

void EngineTarget::make_sums(const RunNeeds& needs) {
    std::vector<Device*> devices;
    for (const EngineDevice& each : model_->devices()) devices.push_back(each.device.get());
    ChosenSums chosen = choose_rank_sums(devices, sum_bytes(model_->config(), needs), rank_is_lost_after());
    sums_ = std::move(chosen.sums);
    callbacks_.detail(fmt::format("sums between the devices: {}", chosen.way));
    if (!chosen.trouble.empty()) callbacks_.note(chosen.trouble);
}

std::vector<Rank> EngineTarget::ranks_of(std::unique_ptr<Forward> Part::*forward) const {
    std::vector<Rank> ranks;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        Rank& rank = ranks.emplace_back(Rank{.forward = ((*parts_[i]).*forward).get()});
        if (sums_) rank.collective = &sums_->rank(i);
        if (parts_.size() == 1) break;
        rank.layers = model_->shards()[i].layers;
        rank.first_vocab = model_->shards()[i].first_vocab;
    }
    return ranks;
}

std::unique_ptr<RankTarget> EngineTarget::target_of(std::unique_ptr<Forward> Part::*forward) const {
    std::vector<KvCache*> caches;
    for (const auto& part : parts_) caches.push_back(&part->cache);
    return std::make_unique<RankTarget>(ranks_of(forward), std::move(caches), model_->arena());
}

EngineTarget::Part& EngineTarget::only() {
    CHECK(parts_.size() == 1, "one device of {}", parts_.size());
    return *parts_.front();
}

void EngineTarget::fill(std::int64_t n_tokens, std::uint64_t seed,
                        const std::function<void(std::int64_t)>& on_progress) {
    for (const auto& part : parts_) fill_cache(part->cache, part->forward->exec(), n_tokens, seed, on_progress);
}

void EngineTarget::use_view(bool use) {
    if (views_.empty()) return;
    std::vector<ViewBuilder*> builders;
    for (const auto& each : views_) {
        each->builder.restart();
        builders.push_back(&each->builder);
    }
    if (!use) builders.clear();
    target_->build_views_with(std::move(builders));
}

bool EngineTarget::streams() const {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->pass != nullptr; });
}

bool EngineTarget::has_graphs() const {
    return parts_.size() == 1 && parts_.front()->forward->graphs() != nullptr;
}

StreamFigures EngineTarget::streamed() const {
    StreamFigures sum;
    for (const auto& part : parts_) {
        if (part->pass == nullptr) continue;
        const StreamFigures& figures = part->pass->figures();
        sum.weights_bytes += figures.weights_bytes;
        sum.kv_bytes += figures.kv_bytes;
        sum.wait_seconds += figures.wait_seconds;
    }
    return sum;
}

std::uint64_t EngineTarget::logits_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->forward->logit_figures().bytes;
    return bytes;
}

EngineTarget::~EngineTarget() {
    report_lock_refusal();
}

void EngineTarget::report_lock_refusal() {
    if (refusal_told_ || model_->arena() == nullptr) return;
    const std::string refusal = model_->arena()->lock_refusal();
    if (refusal.empty()) return;
    callbacks_.note(refusal);
    refusal_told_ = true;
}

}  // namespace slipstream::tools
