// Layers shared out over two emulated cards, and over a card and the CPU: hidden rows cross through page-locked memory,
// under every timing of streams.
#include "runtime/ranks/layers_target.h"

#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/loop/device_target.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/self_check.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_guesser.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;

constexpr std::int64_t kBudget = 6;
constexpr std::int64_t kContext = 768;

enum class Devices : std::uint8_t { Card, TwoCards, CardAndCpu };
enum class Streams : std::uint8_t { Nothing, Both };

/// A device with its part of a model.
struct Part {
    Part(const ModelFiles& files, Device& device, const ModelShare& share, PinnedArena& arena, Streams streams)
        : model(files, device, load_options(files, share, arena, streams)),
          cache(device, model.kv_shape(), model.config().n_layers, kContext, SelfCheck::scratch_nodes_for(kBudget),
                {.resident_chunks = streams == Streams::Both
                                        ? std::vector<std::int64_t>(static_cast<std::size_t>(model.config().n_layers))
                                        : std::vector<std::int64_t>(),
                 .arena = &arena}) {
        reserve_workspace(device,
                          Forward::workspace_shapes(model.config(), model.kv_shape(), forward_limits_for(kBudget)));
        const PassReads reads{&model, &cache};
        if (reads.streams()) pass = std::make_unique<PassStream>(std::vector{reads}, arena, std::size_t{1} << 20);
        forward = std::make_unique<Forward>(model, forward_limits_for(kBudget), pass.get());
    }
    static LoadOptions load_options(const ModelFiles& files, const ModelShare& share, PinnedArena& arena,
                                    Streams streams) {
        LoadOptions options{.context_tokens = kContext, .share = share};
        if (streams == Streams::Nothing) return options;
        options.placement = {.max_item_bytes = 20000, .arena = &arena};
        const ModelWeights thin = share_weights(files.weights(), files.config(), share);
        const std::size_t n = cut_weight_items(thin, WeightRounding::None, 20000).size();
        for (std::size_t i = 0; i < n; ++i) options.placement.streams.push_back(i % 3 != 0);
        return options;
    }
    Model model;
    KvCache cache;
    std::unique_ptr<PassStream> pass;
    std::unique_ptr<Forward> forward;
};

/// `n_tokens` behind a prompt of `n_prompt`; guessed from `future`, where there is one.
Generated generate(const ModelFiles& files, Devices which, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}, std::int64_t n_prompt = 260, std::int64_t n_tokens = 12) {
    Machine machine({.n_cards = 2, .timing = timing});
    std::vector<std::unique_ptr<Device>> devices;
    for (std::int32_t card = 0; card < (which == Devices::TwoCards ? 2 : 1); ++card)
        devices.push_back(std::make_unique<CudaDevice>(
            machine.table(),
            CudaDeviceOptions{.ordinal = card, .memory_bytes = std::size_t{256} << 20, .n_threads = 1}));
    if (which == Devices::CardAndCpu) devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1}));
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
    std::vector<ModelShare> shares{whole_share(files.config())};
    if (devices.size() == 2) shares = deal_layers(files.config(), std::vector<std::int64_t>{3, 1});
    std::vector<std::unique_ptr<Part>> parts;
    std::vector<LayerRank> ranks;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        // The CPU computes in place.
        const bool in_place = devices[i]->kind() == DeviceKind::Cpu;
        parts.push_back(
            std::make_unique<Part>(files, *devices[i], shares[i], arena, in_place ? Streams::Nothing : streams));
        ranks.push_back(
            {parts[i]->forward.get(), &parts[i]->cache, shares[i].layers, shares[i].first_vocab, shares[i].n_vocab});
    }
    std::unique_ptr<Target> target;
    if (devices.size() == 1) {
        target = std::make_unique<DeviceTarget>(*parts[0]->forward, parts[0]->cache);
    } else {
        target = std::make_unique<LayersTarget>(std::move(ranks), &arena);
        EXPECT_TRUE(target->takes_prompt(512));
    }
    NoGuesser nothing;
    ScriptedGuesser scripted(future, 0.7, 5);
    Guesser& guesser = future.empty() ? static_cast<Guesser&>(nothing) : scripted;
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < n_prompt; ++i) prompt.push_back(static_cast<TokenId>((i * 31 + i / 7 + 7) % 97));
    return logged_generation(*target, prompt, n_tokens, guesser, future.empty() ? 1 : kBudget,
                             {.temperature = 0.8, .seed = 3}, files.config().vocab);
}

class LayersOnCards : public testing::TestWithParam<Timing> {
protected:
    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.n_layers = 4, .weight_type = DType::BF16, .biases = true});
};

TEST_P(LayersOnCards, TwoCardsGiveTheBitsOfOne) {
    const Generated one = generate(*files_, Devices::Card, Streams::Nothing, Timing::AtOnce);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        EXPECT_EQ(generate(*files_, Devices::TwoCards, streams, GetParam()), one);
        EXPECT_EQ(generate(*files_, Devices::TwoCards, streams, GetParam(), one.text), one);
    }
}

// The split decides the bits, and nothing else does.
TEST_P(LayersOnCards, ACardBesideTheCpuGivesOneTextWhateverStreamsAndGuesses) {
    const Generated plain = generate(*files_, Devices::CardAndCpu, Streams::Nothing, Timing::AtOnce);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        EXPECT_EQ(generate(*files_, Devices::CardAndCpu, streams, GetParam()), plain);
        EXPECT_EQ(generate(*files_, Devices::CardAndCpu, streams, GetParam(), plain.text), plain);
    }
}

// Rows of a long prompt go from card to card without the host, and to the CPU's thread and back.
TEST_P(LayersOnCards, LongPromptsGiveTheSameBits) {
    const Generated one = generate(*files_, Devices::Card, Streams::Both, Timing::AtOnce, {}, 600, 3);
    for (const Streams streams : {Streams::Nothing, Streams::Both})
        EXPECT_EQ(generate(*files_, Devices::TwoCards, streams, GetParam(), {}, 600, 3), one);
    const Generated beside = generate(*files_, Devices::CardAndCpu, Streams::Nothing, Timing::AtOnce, {}, 600, 3);
    EXPECT_EQ(generate(*files_, Devices::CardAndCpu, Streams::Both, GetParam(), {}, 600, 3), beside);
}

INSTANTIATE_TEST_SUITE_P(Timings, LayersOnCards, testing::ValuesIn(kTimings));

}  // namespace
}  // namespace slipstream
