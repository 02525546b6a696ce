// A device of several with its part of a model, some of it streamed, and a text over all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emulated_machine.h"
#include "kernels/collective.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/target_texts.h"

namespace slipstream::emulation {

inline constexpr std::int64_t kBudget = 6;
inline constexpr std::int64_t kContext = 768;

enum class Streams : std::uint8_t { Nothing, Kv, Both };

struct RankOnCard {
    RankOnCard(const ModelFiles& files, Device& device, const ModelShard& shard, PinnedArena& arena, Streams streams,
               Collective* collective = nullptr)
        : model(files, device, load_options(files, shard, arena, streams)),
          cache(device, model.kv_shape(), model.config().n_layers, kContext, SelfCheck::scratch_nodes_for(kBudget),
                {.resident_chunks = streams != Streams::Nothing
                                        ? std::vector<std::int64_t>(static_cast<std::size_t>(model.config().n_layers))
                                        : std::vector<std::int64_t>(),
                 .arena = &arena}) {
        reserve_workspace(
            device, Forward::workspace_shapes(model.config(), model.kv_shape().dtype, forward_limits_for(kBudget)));
        const PassReads reads{&model, &cache};
        if (reads.streams()) pass = std::make_unique<PassStream>(std::vector{reads}, arena, std::size_t{1} << 20);
        forward = std::make_unique<Forward>(model, forward_limits_for(kBudget), pass.get(), collective);
    }
    static LoadOptions load_options(const ModelFiles& files, const ModelShard& shard, PinnedArena& arena,
                                    Streams streams) {
        LoadOptions options{.context_tokens = kContext, .shard = shard};
        if (streams != Streams::Both) return options;
        options.placement = {.max_item_bytes = 20000, .arena = &arena};
        const ModelWeights thin = shard_weights(files.weights(), files.config(), shard);
        const std::size_t n = cut_weight_items(thin, WeightRounding::None, 20000).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 != 0);
        return options;
    }
    Model model;
    KvCache cache;
    std::unique_ptr<PassStream> pass;
    std::unique_ptr<Forward> forward;
};

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
