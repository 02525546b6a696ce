// A model split over several devices by layers or by kv heads, each device with a KV view of its part of the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/rank_sums.h"
#include "kernels/workspace.h"
#include "runtime/formats/model_files.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/model_split.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"
#include "tests/support/viewed_model.h"

namespace slipstream {

/// Which devices stream their KV; they stream all of it.
enum class KvStreams : std::uint8_t { Nowhere, Everywhere, BehindTheFirst };

struct ViewedSplitOptions {
    std::vector<std::int64_t> parts{};  // layers or kv heads of each device
    ViewOptions view{};
    KvStreams streams = KvStreams::Nowhere;
    SplitKind kind = SplitKind::Layers;
    std::int64_t context_tokens = 2048;
    ForwardLimits forward{.max_tokens = 64, .max_logit_rows = 64};
    std::int64_t scratch_nodes = 64;
    std::int64_t view_nodes = 32;
    std::size_t ring_bytes = std::size_t{1} << 16;  // of each device
    std::vector<CpuDeviceOptions> devices{};        // options of the first devices; the others have the default options
};

struct ViewedRank {
    ViewedRank(const ModelFiles& files, const ModelShard& shard, const ViewedSplitOptions& options, std::size_t rank,
               Device& on, Collective* collective)
        : arena({.limit_bytes = std::size_t{256} << 20, .page_lock = lock_of(on), .device = &on}),
          model(files, on, {.context_tokens = options.context_tokens, .shard = shard}),
          cache(on, model.kv_layouts(), options.context_tokens, options.scratch_nodes,
                {.resident_chunks = resident(options.streams, rank), .arena = &arena}),
          view(on, model.kv_layouts(), view_room(options.view, model.config(), options.view_nodes)),
          builder(cache, view, model, options.view) {
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena, options.ring_bytes);
        reserve_workspace(on, Forward::workspace_shapes(model.config(), model.kv_dtype(), options.forward));
        forward.emplace(model, options.forward, pass.get(), collective);
    }
    [[nodiscard]] std::vector<std::int64_t> resident(KvStreams streams, std::size_t rank) const {
        if (streams == KvStreams::Nowhere || (streams == KvStreams::BehindTheFirst && rank == 0)) return {};
        return std::vector<std::int64_t>(static_cast<std::size_t>(model.config().n_layers()), 0);
    }

    PinnedArena arena;
    Model model;
    KvCache cache;
    KvView view;
    ViewBuilder builder;
    std::unique_ptr<PassStream> pass;
    std::optional<Forward> forward;
};

struct ViewedSplit {
    /// Uses the `given` devices, which must outlive this object, and makes CPU devices for the remaining parts.
    ViewedSplit(const ModelFiles& files, const ViewedSplitOptions& options, std::vector<Device*> given = {})
        : shards(deal_parts(options.kind, files.config(), files.weights(), options.parts)) {
        for (std::size_t i = given.size(); i < shards.size(); ++i) {
            devices.push_back(std::make_unique<CpuDevice>(
                i < options.devices.size() ? options.devices[i] : CpuDeviceOptions{.n_threads = 1}));
            given.push_back(devices.back().get());
        }
        if (options.kind == SplitKind::Tensor)
            sums = choose_rank_sums(given, static_cast<std::size_t>(options.forward.max_tokens) *
                                               row_bytes(DType::F32, files.config().d_model))
                       .sums;
        for (std::size_t i = 0; i < shards.size(); ++i)
            ranks.push_back(
                std::make_unique<ViewedRank>(files, shards[i], options, i, *given[i], sums ? &sums->rank(i) : nullptr));
        make_target();
        std::vector<KvView*> views;
        for (const auto& rank : ranks) views.push_back(&rank->view);
        over_view.emplace(target_ranks(), std::move(views));
        follow(true);
    }
    [[nodiscard]] std::vector<Rank> target_ranks() const {
        std::vector<Rank> all;
        for (std::size_t i = 0; i < shards.size(); ++i)
            all.push_back(
                {&*ranks[i]->forward, shards[i].layers, shards[i].first_vocab, sums ? &sums->rank(i) : nullptr});
        return all;
    }
    void make_target() {
        std::vector<KvCache*> caches;
        for (const auto& rank : ranks) caches.push_back(&rank->cache);
        target = std::make_unique<RankTarget>(target_ranks(), std::move(caches), &ranks.front()->arena);
    }
    /// Sets whether the view builders observe the passes of the target.
    void follow(bool do_follow) {
        std::vector<ViewBuilder*> builders;
        for (const auto& rank : ranks)
            if (do_follow) builders.push_back(&rank->builder);
        target->build_views_with(std::move(builders));
    }
    /// Returns the slot groups that were chosen last for a layer of the whole model, from the device that has this
    /// layer; empty if no device has it.
    [[nodiscard]] std::span<const GroupMove> chosen(std::int64_t layer) const {
        for (std::size_t i = 0; i < shards.size(); ++i)
            for (std::size_t own = 0; own < shards[i].layers.size(); ++own)
                if (shards[i].layers[own] == layer) return ranks[i]->builder.chosen(static_cast<std::int64_t>(own));
        return {};
    }

    std::vector<ModelShard> shards;
    std::vector<std::unique_ptr<CpuDevice>> devices;
    std::unique_ptr<RankSums> sums;  // of SplitKind::Tensor, else null
    std::vector<std::unique_ptr<ViewedRank>> ranks;
    std::unique_ptr<RankTarget> target;
    std::optional<ViewPasses> over_view;
};

}  // namespace slipstream
