// Matrices split among emulated cards, under every timing of streams. Sums go through page-locked memory, where each
// card adds the others' parts, or by what stands for NCCL: the same text.
#include "runtime/ranks/tensor_target.h"

#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/rank_sums.h"
#include "kernels/workspace.h"
#include "runtime/loop/device_target.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/tensor_split.h"
#include "tests/support/error_text.h"
#include "tests/support/logged_generation.h"
#include "tests/support/scripted_guesser.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Nccl;
using emulation::Timing;

constexpr std::int64_t kBudget = 6;
constexpr std::int64_t kContext = 512;

enum class Streams : std::uint8_t { Nothing, Both };

/// A card with its part of a model.
struct Part {
    Part(const ModelFiles& files, Device& device, const ModelShare& share, PinnedArena& arena, Streams streams,
         Collective* collective)
        : model(files, device, load_options(files, share, arena, streams)),
          cache(device, model.kv_shape(), model.config().n_layers, kContext, scratch_nodes_for(kBudget),
                {.resident_chunks = streams == Streams::Both
                                        ? std::vector<std::int64_t>(static_cast<std::size_t>(model.config().n_layers))
                                        : std::vector<std::int64_t>(),
                 .arena = &arena}) {
        reserve_workspace(device,
                          Forward::workspace_shapes(model.config(), model.kv_shape(), forward_limits_for(kBudget)));
        const PassReads reads{&model, &cache};
        if (reads.streams()) pass = std::make_unique<PassStream>(std::vector{reads}, arena, std::size_t{1} << 20);
        forward = std::make_unique<Forward>(model, forward_limits_for(kBudget), pass.get(), collective);
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

/// Cards that have so many kv heads each.
struct Engine {
    Engine(const ModelFiles& files, const std::vector<std::int64_t>& heads, Streams streams, Timing timing,
           Nccl nccl = Nccl::None)
        : machine({.n_cards = static_cast<int>(heads.size()), .timing = timing, .nccl = nccl}),
          vocab(files.config().vocab) {
        std::vector<Device*> devices;
        for (std::int32_t card = 0; card < std::ssize(heads); ++card) {
            cards.push_back(std::make_unique<CudaDevice>(
                machine.table(),
                CudaDeviceOptions{.ordinal = card, .memory_bytes = std::size_t{256} << 20, .n_threads = 1}));
            devices.push_back(cards.back().get());
        }
        arena.emplace(PinnedArenaOptions{.limit_bytes = std::size_t{64} << 20, .device = devices.front()});
        const auto n_rows = static_cast<std::size_t>(forward_limits_for(kBudget).max_tokens);
        if (heads.size() > 1)
            sums = choose_rank_sums(devices, n_rows * row_bytes(DType::F32, files.config().d_model)).sums;
        const std::vector<ModelShare> shares = deal_heads(files.config(), files.weights(), heads);
        std::vector<TensorRank> ranks;
        for (std::size_t i = 0; i < heads.size(); ++i) {
            Collective* collective = sums ? &sums->rank(i) : nullptr;
            parts.push_back(std::make_unique<Part>(files, *cards[i], shares[i], *arena, streams, collective));
            ranks.push_back({parts[i]->forward.get(), &parts[i]->cache, collective});
        }
        if (sums) {
            target = std::make_unique<TensorTarget>(ranks);
        } else {
            target = std::make_unique<DeviceTarget>(*parts[0]->forward, parts[0]->cache);
        }
    }
    /// 10 tokens behind a prompt; guessed from `future`, where there is one.
    [[nodiscard]] Generated generate(const std::vector<TokenId>& future = {}) {
        NoGuesser nothing;
        ScriptedGuesser scripted(future, 0.7, 5);
        Guesser& guesser = future.empty() ? static_cast<Guesser&>(nothing) : scripted;
        std::vector<TokenId> prompt;
        for (int i = 0; i < 260; ++i) prompt.push_back(static_cast<TokenId>((i * 31 + i / 7 + 7) % 97));
        return logged_generation(*target, prompt, 10, guesser, future.empty() ? 1 : kBudget,
                                 {.temperature = 0.8, .seed = 3}, vocab);
    }
    Machine machine;
    std::int64_t vocab;
    std::vector<std::unique_ptr<Device>> cards;
    std::optional<PinnedArena> arena;
    std::unique_ptr<RankSums> sums;
    std::vector<std::unique_ptr<Part>> parts;
    std::unique_ptr<Target> target;
};

Generated generate(const ModelFiles& files, const std::vector<std::int64_t>& heads, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}) {
    return Engine(files, heads, streams, timing).generate(future);
}

class TensorOnCards : public testing::TestWithParam<Timing> {
protected:
    std::unique_ptr<ModelFiles> files_ = make_tiny_model(
        {.n_q_heads = 6, .n_kv_heads = 3, .weight_type = DType::BF16, .biases = true, .output_bias = true});
};

TEST_P(TensorOnCards, TwoCardsGiveOneTextWhateverStreamsAndGuesses) {
    const Generated plain = generate(*files_, {2, 1}, Streams::Nothing, Timing::AtOnce);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        EXPECT_EQ(generate(*files_, {2, 1}, streams, GetParam()), plain);
        EXPECT_EQ(generate(*files_, {2, 1}, streams, GetParam(), plain.text), plain);
    }
}

TEST_P(TensorOnCards, ThreeCardsAddInOrder) {
    const Generated plain = generate(*files_, {1, 1, 1}, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*files_, {1, 1, 1}, Streams::Both, GetParam(), plain.text), plain);
}

TEST_P(TensorOnCards, NcclAndHostMemoryGiveOneText) {
    for (const std::vector<std::int64_t>& heads : {std::vector<std::int64_t>{2, 1}, {1, 1, 1}}) {
        const Generated by_host = generate(*files_, heads, Streams::Nothing, Timing::AtOnce);
        for (const Streams streams : {Streams::Nothing, Streams::Both}) {
            Engine engine(*files_, heads, streams, GetParam(), Nccl::Serves);
            EXPECT_EQ(engine.generate(by_host.text), by_host);
            EXPECT_GT(engine.machine.n_sums(), 10);
        }
    }
}

// Each rank's part of the first sum.
TEST_P(TensorOnCards, APassThatNcclFailsInIsToldAndTheNextOneWorks) {
    const Generated whole = generate(*files_, {1, 1, 1}, Streams::Both, Timing::AtOnce);
    Engine engine(*files_, {1, 1, 1}, Streams::Both, GetParam(), Nccl::Serves);
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        engine.machine.fail_sum_of(rank);
        EXPECT_EQ(
            error_text<RankFailed>([&] { static_cast<void>(engine.generate()); }),
            fmt::format("cuda:{0}, layer 0: sums: cuda:{0} (rank {0}): an emulated call: unhandled cuda error", rank));
        engine.target->forget();
        engine.target->truncate(0);
    }
    EXPECT_EQ(engine.generate(), whole);
}

// Half of the text's logits would be NaN, or another token's, where a sum took a part too early.
TEST_P(TensorOnCards, LogitsAreNearThoseOfOneCard) {
    const Generated one = generate(*files_, {3}, Streams::Nothing, Timing::AtOnce);
    const Generated two = generate(*files_, {2, 1}, Streams::Nothing, GetParam());
    ASSERT_EQ(two.text, one.text);
    ASSERT_EQ(two.logits.size(), one.logits.size());
    double squares = 0.0, errors = 0.0;
    for (std::size_t i = 0; i < one.logits.size(); ++i) {
        squares += double{one.logits[i]} * one.logits[i];
        errors += (double{two.logits[i]} - one.logits[i]) * (double{two.logits[i]} - one.logits[i]);
    }
    EXPECT_LT(errors / squares, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Timings, TensorOnCards, testing::ValuesIn(kTimings));

}  // namespace
}  // namespace slipstream
