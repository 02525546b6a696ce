// A model on one or several CPU devices, split by layers or by matrices, with a fixed placement and a runner.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
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

/// What a windowed layer keeps: a ring of its last KV chunks, or all (to compare with).
enum class WindowedKv : std::uint8_t { Whole, Ring };

/// Slots for experts in each layer that has any, at most for all of them; all experts stream then. Cpu: the first
/// experts stay on the device, the others in host memory.
struct ExpertSlots {
    explicit ExpertSlots(std::int32_t n_slots, ExpertMisses how = ExpertMisses::Copy,
                         std::optional<std::uint64_t> seed = std::nullopt)
        : n(n_slots), misses(how), shuffle_seed(seed) {}
    [[nodiscard]] bool has_slots() const { return misses != ExpertMisses::Cpu; }
    std::int32_t n;
    ExpertMisses misses;
    std::optional<std::uint64_t> shuffle_seed;
};

/// A model split over CPU devices, by layers unless a constructor takes another SplitKind, with its runner.
struct SplitEngine {
    static constexpr std::int64_t kContext = 2600;
    static constexpr std::int64_t kBudget = 9;
    static constexpr std::size_t kItemBytes = 8192;
    static constexpr std::size_t kRingBytes = std::size_t{1} << 17;

    /// `parts`: number of layers of each device. Makes its own devices.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                const std::vector<CpuDeviceOptions>& options = {}, std::size_t ring_bytes = kRingBytes)
        : SplitEngine(files, SplitKind::Layers, parts, streams, options, ring_bytes) {}
    /// Experts have slots, and stream also if other weights do not.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams, ExpertSlots slots,
                std::size_t ring_bytes = kRingBytes, const std::vector<CpuDeviceOptions>& options = {})
        : slots_(slots) {
        make(files, SplitKind::Layers, parts, streams, ring_bytes, own_devices(parts.size(), options));
    }
    /// Uses `devices`, which must outlive this object.
    SplitEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices,
                WindowedKv windowed_kv = WindowedKv::Whole, std::int64_t context_tokens = kContext,
                std::optional<ExpertSlots> slots = std::nullopt)
        : SplitEngine(windowed_kv, context_tokens) {
        slots_ = slots;
        make(files, SplitKind::Layers, parts, streams, ring_bytes, devices);
    }
    /// Makes a split of any kind for another context: `parts` are layers or kv heads of each device. Makes its own
    /// devices.
    SplitEngine(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
                WindowedKv windowed_kv, std::int64_t context_tokens, std::size_t ring_bytes = kRingBytes)
        : SplitEngine(windowed_kv, context_tokens) {
        for (std::size_t i = 0; i < parts.size(); ++i) own.push_back(std::make_unique<RankDevice>());
        make(files, kind, parts, streams, ring_bytes, own);
    }

    [[nodiscard]] PinnedArena& arena() { return *arena_; }

    std::vector<std::unique_ptr<RankDevice>> own;
    std::vector<std::unique_ptr<Model>> models;
    std::unique_ptr<ModelRunner> runner;
    RankTarget* target = nullptr;  // of the runner
    RankTarget* plain = nullptr;   // target of the self-check

protected:
    SplitEngine(WindowedKv windowed_kv, std::int64_t context_tokens)
        : context_(context_tokens), windowed_kv_(windowed_kv) {}
    SplitEngine(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
                const std::vector<CpuDeviceOptions>& options, std::size_t ring_bytes) {
        make(files, kind, parts, streams, ring_bytes, own_devices(parts.size(), options));
    }
    const std::vector<std::unique_ptr<RankDevice>>& own_devices(std::size_t n,
                                                                const std::vector<CpuDeviceOptions>& options) {
        for (std::size_t i = 0; i < n; ++i)
            own.push_back(std::make_unique<RankDevice>(i < options.size() ? options[i] : CpuDeviceOptions{}));
        return own;
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
                                 .kv = kv_placement(models.back()->config(), streams, on),
                                 .ring_bytes = ring_bytes});
            if (!slots_) continue;
            of_runner.back().misses = {.misses = slots_->misses, .shuffle_seed = slots_->shuffle_seed};
            if (!slots_->has_slots()) continue;
            for (const LayerConfig& layer : models.back()->config().layers)
                of_runner.back().expert_slots.push_back(
                    std::min(slots_->n, static_cast<std::int32_t>(layer.feed_forward.experts.n_experts)));
        }
        RunnerNeeds needs{.text_tokens = context_,
                          .forward = forward_limits_for(kBudget),
                          .scratch_nodes = SelfCheck::scratch_nodes_for(kBudget),
                          .check_tokens = kPrefillChunkTokens};
        needs.forward.max_drafts = 2 * kBudget;
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
    LoadOptions load_options(const ModelFiles& files, const ModelShard& shard, Streams streams, RankDevice& on) const {
        LoadOptions options{.context_tokens = context_, .shard = shard};
        options.placement = {.max_item_bytes = kItemBytes, .arena = &on.arena};
        const bool weights_stream = streams == Streams::Weights || streams == Streams::Both;
        if (!weights_stream && !slots_) return options;
        const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
        // Every third item is resident, but no expert beside slots.
        const std::vector<WeightItem> items = cut_weight_items(thin, WeightRounding::None, kItemBytes);
        for (std::size_t i = 0; i < items.size(); ++i)
            options.placement.streams.push_back(slots_ && items[i].expert != kNoExpert
                                                    ? slots_->has_slots() || items[i].expert >= slots_->n
                                                    : weights_stream && i % 3 > 0);
        return options;
    }
    // Returns a placement in which all KV is resident or, if KV streams, every other layer has one resident KV chunk;
    // if windowed layers keep rings, the ring of every third layer is then resident.
    KvPlacement kv_placement(const ModelConfig& config, Streams streams, RankDevice& on) const {
        KvPlacement placement{.resident_chunks = {}, .arena = &on.arena};
        if (windowed_kv_ == WindowedKv::Ring) placement.windows = layer_windows(config);
        if (streams != Streams::Kv && streams != Streams::Both) return placement;
        for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
            const bool is_resident_ring = !placement.windows.empty() && config.window(layer) > 0 && layer % 3 == 2;
            placement.resident_chunks.push_back(is_resident_ring ? context_ : layer % 2);
        }
        return placement;
    }

    PinnedArena* arena_ = nullptr;
    std::int64_t context_ = kContext;
    std::optional<ExpertSlots> slots_{};
    WindowedKv windowed_kv_ = WindowedKv::Whole;
};

}  // namespace slipstream
