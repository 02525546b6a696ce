// From counts of several orders to one probability, as context-mixing compressors do it (Mahoney 2005, "Adaptive
// weighing of context models for lossless data compression"): what each order says about a token is a bin, whose
// probability is learnt from how often such a token came; the bins' log-odds are summed with weights that are learnt
// by gradient descent, one set for each (longest context seen before, longest context in which the token was seen).
//
// Learning is online and starts from built-in values, so that the first guesses are sound.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/context_model.h"

namespace slipstream::draft {

class ContextMixer {
public:
    static constexpr int kOrders = ContextModel::kMaxOrder + 1;  // order 0 included
    using BinIndex = std::uint16_t;

    ContextMixer();
    void reset();

    // What one order says about a token.

    /// Seen `count` times of `total` behind the context, `rank` tokens more recently.
    [[nodiscard]] static BinIndex seen(int order, std::uint32_t count, std::uint32_t total, std::size_t rank) {
        return bin(order, bucket(count), bucket(total - count), static_cast<int>(rank < 3 ? rank : 3));
    }
    /// Never seen behind the context, although `distinct` tokens were, `total` times.
    [[nodiscard]] static BinIndex unseen(int order, std::uint32_t total, std::size_t distinct) {
        return bin(order, 0, bucket(total), bucket(static_cast<std::uint32_t>(distinct)) / 2);
    }
    /// Order 0: seen `count` times of `total`, last time `age` tokens ago.
    [[nodiscard]] static BinIndex unigram(std::uint32_t count, std::uint32_t total, std::uint32_t age) {
        const int rarity = count == 0 ? kBuckets - 1 : std::bit_width(total) - std::bit_width(count);
        const int recency = count == 0 || age >= 256 ? 4 : age >= 64 ? 3 : age >= 16 ? 2 : age >= 4 ? 1 : 0;
        return bin(0, bucket(count), rarity < kBuckets ? rarity : kBuckets - 1, recency);
    }

    [[nodiscard]] float log_odds(BinIndex bin) const { return bins_[bin].log_odds; }

    /// Weight of each order's log-odds, and last a constant: for a token last seen behind `highest` tokens where
    /// `longest` of the path were seen before.
    using Weights = std::array<float, kOrders + 1>;
    [[nodiscard]] const Weights& weights(int longest, int highest) const { return weights_[set_of(longest, highest)]; }

    /// Learns from one token that could have come and did (hit = 1) or did not (0). `bins`: of orders 0 to longest;
    /// `predicted`: the probability that was mixed from them. refresh() must follow before anything is asked.
    void learn(std::span<const BinIndex> bins, int longest, int highest, float predicted, float hit);
    void refresh();

    /// The learnt state, for files: log-odds are made of it.
    [[nodiscard]] std::vector<float> state() const;
    /// False where `state` is not of this kind.
    [[nodiscard]] bool restore(std::span<const float> state);

private:
    static constexpr int kBuckets = 8;
    static constexpr int kRanks = 5;

    struct Bin {
        float probability = 0.0F;
        float n = 0.0F;  // observations behind it, at most kMemory
        float log_odds = 0.0F;
        bool changed = false;
    };

    [[nodiscard]] static int bucket(std::uint32_t n) {
        constexpr std::array<std::uint8_t, 22> of = {0, 1, 2, 3, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7};
        return of[n < of.size() ? n : of.size() - 1];
    }
    [[nodiscard]] static BinIndex bin(int order, int count, int rest, int rank) {
        return static_cast<BinIndex>(((order * kBuckets + count) * kBuckets + rest) * kRanks + rank);
    }
    [[nodiscard]] static std::size_t set_of(int longest, int highest) {
        const int gap = longest - highest < 3 ? longest - highest : 3;
        return longest * 4 + gap;
    }

    std::vector<Bin> bins_;  // [kOrders * kBuckets * kBuckets * kRanks]
    std::array<Weights, kOrders * 4> weights_{};
    std::vector<BinIndex> changed_;
};

}  // namespace slipstream::draft
