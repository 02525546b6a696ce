// Layers shared out over two emulated cards, and over a card and the CPU: hidden rows cross through page-locked memory,
// under every timing of streams.
#include "runtime/ranks/rank_target.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runner_on_cards.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;

enum class Devices : std::uint8_t { Card, TwoCards, CardAndCpu };

/// `n_tokens` behind a prompt of `n_prompt`; guessed from `future`, where there is one.
Generated generate(const ModelFiles& files, Devices which, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}, std::int64_t n_prompt = 260, std::int64_t n_tokens = 12) {
    Machine machine({.n_cards = 2, .timing = timing});
    std::vector<std::unique_ptr<Device>> devices;
    for (std::int32_t card = 0; card < (which == Devices::TwoCards ? 2 : 1); ++card)
        devices.push_back(emulation::small_card(machine, card));
    if (which == Devices::CardAndCpu) devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1}));
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
    std::vector<ModelShard> shards{whole_shard(files.config())};
    if (devices.size() == 2) shards = deal_layers(files.config(), std::vector<std::int64_t>{3, 1});
    std::vector<Device*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    RunnerOnCards on_cards(files, pointers, shards, arena, streams);
    RankTarget& target = on_cards.runner->target();
    EXPECT_TRUE(target.takes_prompt(512) || devices.size() == 1);
    return emulation::generate_on(target, future, n_prompt, n_tokens);
}

class LayersOnCards : public testing::TestWithParam<Timing> {
protected:
    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.n_layers = 4, .weight_type = DType::BF16, .biases = true});
    std::unique_ptr<ModelFiles> q8_files_ =
        make_tiny_model({.n_layers = 4, .head_dim = 64, .weight_type = DType::BF16, .kv_dtype = DType::Q8_0});
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

TEST_P(LayersOnCards, AnEightBitCacheGivesOneTextOnEachSplit) {
    const Generated one = generate(*q8_files_, Devices::Card, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*q8_files_, Devices::TwoCards, Streams::Both, GetParam(), one.text), one);
    const Generated beside = generate(*q8_files_, Devices::CardAndCpu, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*q8_files_, Devices::CardAndCpu, Streams::Both, GetParam(), beside.text), beside);
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
