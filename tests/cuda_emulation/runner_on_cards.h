// A model over emulated cards, some of it streamed, with a runner, and a text over it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emulated_machine.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/rank_sums.h"
#include "kernels/workspace.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/ranks/model_runner.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/target_texts.h"

namespace slipstream::emulation {

inline constexpr std::int64_t kBudget = 6;
inline constexpr std::int64_t kContext = 768;

enum class Streams : std::uint8_t { Nothing, Weights, Kv, Both };

/// A model split over emulated cards, and a runner over it. A CPU among the devices computes in place. With slots all
/// experts stream where weights do.
struct RunnerOnCards {
    RunnerOnCards(const ModelFiles& files, const std::vector<Device*>& devices, const std::vector<ModelShard>& shards,
                  PinnedArena& arena, Streams streams, std::unique_ptr<RankSums> sums = nullptr,
                  const std::optional<ViewNeeds>& view = std::nullopt, std::int64_t context_tokens = kContext,
                  std::optional<std::int32_t> expert_slots = std::nullopt) {
        std::vector<RunnerShard> of_runner;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            const Streams here = devices[i]->kind() == DeviceKind::Cpu ? Streams::Nothing : streams;
            const Model& model = *models.emplace_back(std::make_unique<Model>(
                files, *devices[i],
                load_options(files, shards[i], arena, here, context_tokens, expert_slots.has_value())));
            reserve_workspace(*devices[i],
                              Forward::workspace_shapes(model.config(), model.kv_dtype(), forward_limits_for(kBudget)));
            RunnerShard& shard = of_runner.emplace_back(RunnerShard{.model = &model,
                                                                    .layers = shards[i].layers,
                                                                    .first_vocab = shards[i].first_vocab,
                                                                    .kv = {.resident_chunks = {}, .arena = &arena},
                                                                    .ring_bytes = std::size_t{1} << 20});
            for (const LayerConfig& layer : model.config().layers)
                if (expert_slots && (here == Streams::Weights || here == Streams::Both))
                    shard.expert_slots.push_back(
                        std::min(*expert_slots, static_cast<std::int32_t>(layer.feed_forward.experts.n_experts)));
            if (here == Streams::Kv || here == Streams::Both)
                shard.kv.resident_chunks.resize(static_cast<std::size_t>(model.config().n_layers()));
        }
        runner = std::make_unique<ModelRunner>(of_runner,
                                               RunnerNeeds{.text_tokens = context_tokens,
                                                           .forward = forward_limits_for(kBudget),
                                                           .scratch_nodes = SelfCheck::scratch_nodes_for(kBudget),
                                                           .view = view},
                                               &arena, std::move(sums));
    }
    static LoadOptions load_options(const ModelFiles& files, const ModelShard& shard, PinnedArena& arena,
                                    Streams streams, std::int64_t context_tokens = kContext,
                                    bool all_experts_stream = false) {
        LoadOptions options{.context_tokens = context_tokens, .shard = shard};
        if (streams == Streams::Nothing || streams == Streams::Kv) return options;
        options.placement = {.max_item_bytes = 20000, .arena = &arena};
        const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
        const std::vector<WeightItem> items = cut_weight_items(thin, WeightRounding::None, 20000);
        for (std::size_t i = 0; i < items.size(); ++i)
            options.placement.streams.push_back(i % 3 != 0 || (all_experts_stream && items[i].expert != kNoExpert));
        return options;
    }

    std::vector<std::unique_ptr<Model>> models;
    std::unique_ptr<ModelRunner> runner;
};

/// Sums of the partial sums of passes over `devices`.
[[nodiscard]] inline std::unique_ptr<RankSums> sums_of_passes(const ModelFiles& files,
                                                              const std::vector<Device*>& devices) {
    const auto n_rows = static_cast<std::size_t>(forward_limits_for(kBudget).max_tokens);
    return choose_rank_sums(devices, n_rows * row_bytes(DType::F32, files.config().d_model)).sums;
}

[[nodiscard]] inline std::unique_ptr<Device> small_card(Machine& machine, std::int32_t ordinal) {
    return std::make_unique<CudaDevice>(
        machine.table(), CudaDeviceOptions{.ordinal = ordinal, .memory_bytes = std::size_t{256} << 20, .n_threads = 1});
}

/// `n_tokens` behind a prompt of `n_prompt`; guessed from `future`, where there is one.
[[nodiscard]] inline Generated generate_on(Target& target, const std::vector<TokenId>& future, std::int64_t n_prompt,
                                           std::int64_t n_tokens) {
    NoProposer nothing;
    ScriptedProposer scripted(future, 0.7, 5);
    Proposer& proposer = future.empty() ? static_cast<Proposer&>(nothing) : scripted;
    return logged_generation(target, prompt_of(n_prompt), n_tokens, proposer, future.empty() ? 1 : kBudget,
                             {.temperature = 0.8, .seed = 3}, kTinyVocab);
}

}  // namespace slipstream::emulation
