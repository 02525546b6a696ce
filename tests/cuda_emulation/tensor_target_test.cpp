// Matrices split among emulated cards: each copies its part of a sum out and adds the others' from page-locked memory,
// under every timing of streams.
#include "runtime/ranks/tensor_target.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/host_collective.h"
#include "rank_on_card.h"
#include "runtime/ranks/tensor_split.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RankOnCard;
using emulation::Streams;
using emulation::Timing;

/// 10 tokens behind a prompt over cards that have so many kv heads; guessed from `future`, where there is one.
Generated generate(const ModelFiles& files, const std::vector<std::int64_t>& heads, Streams streams, Timing timing,
                   const std::vector<TokenId>& future = {}) {
    Machine machine({.n_cards = static_cast<int>(heads.size()), .timing = timing});
    std::vector<std::unique_ptr<Device>> cards;
    std::vector<Device*> devices;
    for (std::int32_t card = 0; card < std::ssize(heads); ++card) {
        cards.push_back(emulation::small_card(machine, card));
        devices.push_back(cards.back().get());
    }
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .device = devices.front()});
    const auto n_rows = static_cast<std::size_t>(forward_limits_for(emulation::kBudget).max_tokens);
    HostCollective sums(devices, n_rows * row_bytes(DType::F32, files.config().d_model));
    const std::vector<ModelShare> shares = deal_heads(files.config(), files.weights(), heads);
    std::vector<std::unique_ptr<RankOnCard>> parts;
    std::vector<TensorRank> ranks;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        Collective* collective = heads.size() > 1 ? &sums.rank(i) : nullptr;
        parts.push_back(std::make_unique<RankOnCard>(files, *cards[i], shares[i], arena, streams, collective));
        ranks.push_back({parts[i]->forward.get(), &parts[i]->cache, collective});
    }
    std::unique_ptr<Target> target;
    if (heads.size() == 1) {
        target = std::make_unique<DeviceTarget>(*parts[0]->forward, parts[0]->cache);
    } else {
        target = std::make_unique<TensorTarget>(ranks);
    }
    return emulation::generate_on(*target, future, 260, 10);
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
