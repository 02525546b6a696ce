// A model over several CPU devices, its layers shared out, and all that a text over them needs; placed somehow.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/layer_split.h"
#include "runtime/ranks/rank_target.h"

namespace slipstream {

enum class Streams : std::uint8_t { Nothing, Weights, Kv, Both };

/// A device, and host memory that it streams from.
struct RankDevice {
    explicit RankDevice(const CpuDeviceOptions& options = {}) : device(options) {}
    PinnedArena arena{{.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}};
    CpuDevice device;
};

/// A part of a model on its device.
struct RankEngine {
    static constexpr std::int64_t kContext = 2600;
    static constexpr std::int64_t kBudget = 9;
    static constexpr std::size_t kItemBytes = 8192;
    static constexpr std::size_t kRingBytes = std::size_t{1} << 17;

    RankEngine(const ModelFiles& files, const ModelShard& shard, Streams streams, RankDevice& on,
               std::size_t ring_bytes = kRingBytes, Collective* collective = nullptr)
        : arena(on.arena),
          model(files, on.device, load_options(files, shard, streams)),
          cache(on.device, model.kv_shape(), model.config().n_layers, kContext, SelfCheck::scratch_nodes_for(kBudget),
                kv_placement(streams)) {
        const PassReads reads{&model, &cache};
        if (reads.streams()) pass = std::make_unique<PassStream>(std::vector{reads}, arena, ring_bytes);
        forward = std::make_unique<Forward>(model, forward_limits_for(kBudget), pass.get(), collective);
        plain = std::make_unique<Forward>(model, check_forward_limits(), pass.get(), collective);
    }

    LoadOptions load_options(const ModelFiles& files, const ModelShard& shard, Streams streams) {
        LoadOptions options{.context_tokens = kContext, .shard = shard};
        options.placement = {.max_item_bytes = kItemBytes, .arena = &arena};
        if (streams == Streams::Nothing || streams == Streams::Kv) return options;
        const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
        // All but every third, which is resident.
        const std::size_t n = cut_weight_items(thin, WeightRounding::None, kItemBytes).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 > 0);
        return options;
    }
    KvPlacement kv_placement(Streams streams) {
        KvPlacement placement{.resident_chunks = {}, .arena = &arena};
        if (streams == Streams::Kv || streams == Streams::Both)
            for (std::int64_t layer = 0; layer < model.config().n_layers; ++layer)
                placement.resident_chunks.push_back(layer % 2);
        return placement;
    }

    PinnedArena& arena;
    Model model;
    KvCache cache;
    std::unique_ptr<PassStream> pass;
    std::unique_ptr<Forward> forward;
    std::unique_ptr<Forward> plain;
};

/// A model over several devices.
struct SplitEngine {
    /// On devices of its own.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& n_layers, Streams streams,
                const std::vector<CpuDeviceOptions>& options = {}, std::size_t ring_bytes = RankEngine::kRingBytes) {
        for (std::size_t i = 0; i < n_layers.size(); ++i)
            own.push_back(std::make_unique<RankDevice>(i < options.size() ? options[i] : CpuDeviceOptions{}));
        make_ranks(files, n_layers, streams, own, ring_bytes);
    }
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& n_layers, Streams streams,
                std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices) {
        make_ranks(files, n_layers, streams, devices, ring_bytes);
    }
    void make_ranks(const ModelFiles& files, const std::vector<std::int64_t>& n_layers, Streams streams,
                    const std::vector<std::unique_ptr<RankDevice>>& devices, std::size_t ring_bytes) {
        const std::vector<ModelShard> shards = deal_layers(files.config(), n_layers);
        std::vector<Rank> of_target;
        std::vector<Rank> of_plain;
        std::vector<KvCache*> caches;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            ranks.push_back(std::make_unique<RankEngine>(files, shards[i], streams, *devices[i], ring_bytes));
            RankEngine& rank = *ranks.back();
            of_target.push_back({rank.forward.get(), shards[i].layers, shards[i].first_vocab});
            caches.push_back(&rank.cache);
            of_plain.push_back(of_target.back());
            of_plain.back().forward = rank.plain.get();
        }
        target = std::make_unique<RankTarget>(of_target, caches, &devices.front()->arena);
        plain = std::make_unique<RankTarget>(of_plain, caches);
    }
    std::vector<std::unique_ptr<RankDevice>> own;
    std::vector<std::unique_ptr<RankEngine>> ranks;
    std::unique_ptr<RankTarget> target;
    std::unique_ptr<RankTarget> plain;
};

}  // namespace slipstream
