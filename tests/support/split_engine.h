// A model on one or several CPU devices, split by layers or by matrices, with a fixed placement and a runner.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/host_collective.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/ranks/model_runner.h"
#include "runtime/ranks/model_split.h"

namespace slipstream {

enum class Streams : std::uint8_t { Nothing, Weights, Kv, Both };

/// A device, and the pinned host memory from which it streams.
struct RankDevice {
    explicit RankDevice(const CpuDeviceOptions& options = {}) : device(options) {}
    PinnedArena arena{{.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}};
    CpuDevice device;
};

/// A split by layers.
struct SplitEngine {
    static constexpr std::int64_t kContext = 2600;
    static constexpr std::int64_t kBudget = 9;
    static constexpr std::size_t kItemBytes = 8192;
    static constexpr std::size_t kRingBytes = std::size_t{1} << 17;

    /// `parts`: number of layers of each device. Makes its own devices.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                const std::vector<CpuDeviceOptions>& options = {}, std::size_t ring_bytes = kRingBytes)
        : SplitEngine(files, SplitKind::Layers, parts, streams, options, ring_bytes) {}
    /// Uses `devices`, which must outlive this object.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices) {
        make(files, SplitKind::Layers, parts, streams, ring_bytes, devices);
    }

    [[nodiscard]] PinnedArena& arena() { return *arena_; }

    std::vector<std::unique_ptr<RankDevice>> own;
    std::vector<std::unique_ptr<Model>> models;
    std::unique_ptr<ModelRunner> runner;
    RankTarget* target = nullptr;  // of the runner
    RankTarget* plain = nullptr;   // target of the self-check

protected:
    SplitEngine() = default;
    SplitEngine(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
                const std::vector<CpuDeviceOptions>& options, std::size_t ring_bytes) {
        for (std::size_t i = 0; i < parts.size(); ++i)
            own.push_back(std::make_unique<RankDevice>(i < options.size() ? options[i] : CpuDeviceOptions{}));
        make(files, kind, parts, streams, ring_bytes, own);
    }
    void make(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
              std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices) {
        const std::vector<ModelShard> shards = deal_parts(kind, files.config(), files.weights(), parts);
        std::vector<RunnerShard> of_runner;
        std::vector<Device*> pointers;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            RankDevice& on = *devices[i];
            pointers.push_back(&on.device);
            models.push_back(std::make_unique<Model>(files, on.device, load_options(files, shards[i], streams, on)));
            of_runner.push_back({.model = models.back().get(),
                                 .layers = shards[i].layers,
                                 .first_vocab = shards[i].first_vocab,
                                 .kv = kv_placement(models.back()->config().n_layers(), streams, on),
                                 .ring_bytes = ring_bytes});
        }
        const RunnerNeeds needs{.text_tokens = kContext,
                                .forward = forward_limits_for(kBudget),
                                .scratch_nodes = SelfCheck::scratch_nodes_for(kBudget),
                                .check_tokens = kPrefillChunkTokens};
        std::unique_ptr<RankSums> sums;
        if (kind == SplitKind::Tensor)
            sums = std::make_unique<HostCollective>(pointers, static_cast<std::size_t>(needs.forward.max_tokens) *
                                                                  row_bytes(DType::F32, files.config().d_model));
        arena_ = &devices.front()->arena;
        runner = std::make_unique<ModelRunner>(of_runner, needs, arena_, std::move(sums));
        target = &runner->target();
        plain = &runner->check_target();
    }

private:
    static LoadOptions load_options(const ModelFiles& files, const ModelShard& shard, Streams streams, RankDevice& on) {
        LoadOptions options{.context_tokens = kContext, .shard = shard};
        options.placement = {.max_item_bytes = kItemBytes, .arena = &on.arena};
        if (streams == Streams::Nothing || streams == Streams::Kv) return options;
        const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
        // Every third item is resident.
        const std::size_t n = cut_weight_items(thin, WeightRounding::None, kItemBytes).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 > 0);
        return options;
    }
    static KvPlacement kv_placement(std::int64_t n_layers, Streams streams, RankDevice& on) {
        KvPlacement placement{.resident_chunks = {}, .arena = &on.arena};
        if (streams == Streams::Kv || streams == Streams::Both)
            for (std::int64_t layer = 0; layer < n_layers; ++layer) placement.resident_chunks.push_back(layer % 2);
        return placement;
    }

    PinnedArena* arena_ = nullptr;
};

}  // namespace slipstream
