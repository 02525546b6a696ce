#include "runtime/ranks/model_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/loop_needs.h"

namespace slipstream {

namespace {

std::vector<KvCache*> pointers(const std::vector<std::unique_ptr<KvCache>>& caches) {
    std::vector<KvCache*> all;
    for (const auto& cache : caches) all.push_back(cache.get());
    return all;
}

}  // namespace

ModelRunner::RankView::RankView(const Model& model, KvCache& cache, const ViewNeeds& needs)
    : view(model.device(), model.kv_layouts(), needs.room(model.config())),
      builder(cache, view, model, needs.options),
      bytes(KvView::device_bytes(model.kv_layouts(), needs.room(model.config()))) {}

ModelRunner::SequenceParts::SequenceParts(const std::vector<Rank>& ranks, const Caches& caches, PinnedArena* arena)
    : target(ranks, pointers(caches), arena), sequence(target) {}

ModelRunner::ModelRunner(const std::vector<RunnerShard>& shards, const RunnerNeeds& needs, PinnedArena* arena,
                         std::unique_ptr<RankSums> sums)
    : sums_(std::move(sums)), caches_(needs.n_sequences) {
    CHECK(!shards.empty() && needs.n_sequences >= 1, "{} shards, {} sequences", shards.size(), needs.n_sequences);
    std::vector<Rank> ranks;
    std::vector<Rank> check_ranks;
    for (std::size_t i = 0; i < shards.size(); ++i) {
        const RunnerShard& shard = shards[i];
        const Model& model = *shard.model;
        layers_.push_back(shard.layers);
        std::vector<PassReads> reads;
        KvPlacement placement = shard.kv;
        placement.max_drafts = needs.forward.max_drafts;
        for (Caches& caches : caches_) {
            caches.push_back(std::make_unique<KvCache>(model.device(), model.kv_layouts(), needs.text_tokens,
                                                       needs.scratch_nodes, placement));
            reads.push_back({&model, caches.back().get()});
        }
        Collective* collective = sums_ ? &sums_->rank(i) : nullptr;
        RankParts& parts = *ranks_.emplace_back(std::make_unique<RankParts>());
        if (reads.front().streams()) {
            CHECK(arena != nullptr, "a model that streams, and no host memory");
            parts.stream =
                std::make_unique<PassStream>(reads, *arena, shard.ring_bytes, shard.expert_slots, shard.misses);
        }
        parts.forward = std::make_unique<Forward>(model, needs.forward, parts.stream.get(), collective);
        ranks.push_back({parts.forward.get(), shard.layers, shard.first_vocab, collective});
        if (needs.check_tokens == 0) continue;
        parts.check = std::make_unique<Forward>(
            model, check_forward_limits(needs.check_tokens, needs.forward.max_drafts), parts.stream.get(), collective);
        check_ranks.push_back(ranks.back());
        check_ranks.back().forward = parts.check.get();
    }
    for (const Caches& caches : caches_) {
        SequenceParts& parts = *sequences_.emplace_back(std::make_unique<SequenceParts>(ranks, caches, arena));
        if (!check_ranks.empty()) parts.check_target.emplace(check_ranks, pointers(caches), arena);
        if (needs.hidden_rows > 0) {
            parts.hidden =
                std::make_unique<HiddenTail>(parts.target.hidden_device(), shards.front().model->config().d_model,
                                             needs.hidden_rows, needs.scratch_nodes);
            parts.target.keep_hidden_in(parts.hidden.get());
        }
        if (std::ranges::any_of(shards, [](const RunnerShard& shard) { return shard.model->config().has_experts(); })) {
            std::vector<ExpertChoices*> choices;
            for (const RunnerShard& shard : shards) {
                parts.choices.push_back(std::make_unique<ExpertChoices>(shard.model->config(), needs.scratch_nodes));
                choices.push_back(parts.choices.back().get());
            }
            parts.target.note_choices_in(std::move(choices));
        }
        if (!needs.view) continue;
        std::vector<KvView*> views;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            parts.views.push_back(std::make_unique<RankView>(*shards[i].model, *caches[i], *needs.view));
            views.push_back(&parts.views.back()->view);
        }
        parts.view_passes = std::make_unique<ViewPasses>(ranks, std::move(views));
    }
}

RankTarget& ModelRunner::check_target(std::size_t i) {
    CHECK(sequences_[i]->check_target.has_value(), "no self-check was asked for");
    return *sequences_[i]->check_target;
}

std::size_t ModelRunner::view_bytes(std::size_t i) const {
    std::size_t bytes = 0;
    for (const auto& each : sequences_[i]->views) bytes += each->bytes;
    return bytes;
}

void ModelRunner::use_view(bool use, std::size_t i) {
    std::vector<ViewBuilder*> builders;
    for (const auto& each : sequences_[i]->views) {
        each->builder.restart();
        if (use) builders.push_back(&each->builder);
    }
    target(i).build_views_with(std::move(builders));
}

void ModelRunner::fill(std::int64_t n_tokens, std::uint64_t seed,
                       const std::function<void(std::int64_t)>& on_progress) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        fill_cache(cache(rank), forward(rank).exec(), n_tokens, seed, on_progress);
}

void ModelRunner::profile(StageEnd end, TraceFile* trace) {
    std::vector<std::unique_ptr<PassProfile>> before = std::move(profiles_);  // in use until all are replaced
    profiles_.clear();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        RankParts& parts = *ranks_[rank];
        PassProfile& fresh = *profiles_.emplace_back(
            std::make_unique<PassProfile>(parts.forward->exec().device, layers_[rank], end, trace));
        parts.forward->profile_with(&fresh);
        if (parts.check) parts.check->profile_with(&fresh);
        if (parts.stream) parts.stream->profile_with(trace != nullptr ? &fresh : nullptr);
    }
}

PassProfile& ModelRunner::stages(std::size_t rank) {
    CHECK(rank < profiles_.size(), "the passes of rank {} are not timed", rank);
    return *profiles_[rank];
}

bool ModelRunner::streams() const {
    return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->stream != nullptr; });
}

bool ModelRunner::slots_are_full() const {
    return std::ranges::all_of(
        ranks_, [](const auto& rank) { return rank->stream == nullptr || rank->stream->slots_are_full(); });
}

std::vector<ExpertUse> ModelRunner::expert_use() const {
    std::vector<ExpertUse> all;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank]->stream == nullptr) continue;
        const std::span<const ExpertUse> uses = ranks_[rank]->stream->expert_use();
        for (std::size_t i = 0; i < uses.size(); ++i) {
            const std::size_t layer = model_layer(rank, i);
            if (all.size() <= layer) all.resize(layer + 1);
            all[layer] = uses[i];
        }
    }
    return all;
}

std::size_t ModelRunner::start_slots(std::span<const ExpertUse> use,
                                     const std::function<void(std::size_t done, std::size_t total)>& on_progress) {
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        PassStream* stream = ranks_[rank]->stream.get();
        if (stream == nullptr || stream->expert_use().empty()) continue;
        std::vector<ExpertUse> of_rank(stream->expert_use().size());
        for (std::size_t i = 0; i < of_rank.size(); ++i)
            if (const std::size_t layer = model_layer(rank, i); layer < use.size()) of_rank[i] = use[layer];
        stream->go_on_from(of_rank);
        total += stream->filling_bytes();
    }
    std::size_t done = 0;
    for (const auto& rank : ranks_)
        if (rank->stream != nullptr)
            rank->stream->fill_slots(rank->forward->exec().stream,
                                     [&](std::size_t bytes) { on_progress(done += bytes, total); });
    return done;
}

bool ModelRunner::has_graphs() const {
    return ranks_.size() == 1 && ranks_.front()->forward->graphs() != nullptr;
}

StreamFigures ModelRunner::streamed() const {
    StreamFigures sum;
    for (const auto& rank : ranks_) {
        if (rank->stream == nullptr) continue;
        const StreamFigures& figures = rank->stream->figures();
        sum.weights_bytes += figures.weights_bytes;
        sum.kv_bytes += figures.kv_bytes;
        sum.wait_seconds += figures.wait_seconds;
    }
    return sum;
}

std::vector<ExpertFigures> ModelRunner::expert_figures() const {
    std::vector<ExpertFigures> all;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const std::span<const ExpertFigures> figures = ranks_[rank]->forward->expert_figures();
        for (std::size_t i = 0; i < figures.size(); ++i) {
            const std::size_t layer = model_layer(rank, i);
            if (all.size() <= layer) all.resize(layer + 1);
            all[layer] += figures[i];
        }
    }
    return all;
}

std::vector<DistinctExperts> ModelRunner::distinct_experts() const {
    std::vector<DistinctExperts> all;
    for (const ExpertFigures& figures : expert_figures()) all.push_back(figures.distinct);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const std::span<const NeighbourExperts> neighbours = ranks_[rank]->forward->neighbours();
        for (std::size_t i = 0; i < neighbours.size(); ++i) all[model_layer(rank, i)] += neighbours[i].distinct();
    }
    return all;
}

std::uint64_t ModelRunner::logits_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& rank : ranks_) bytes += rank->forward->logit_figures().bytes;
    return bytes;
}

}  // namespace slipstream
