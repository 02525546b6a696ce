// Merges the counts of several orders into one probability, as context-mixing compressors do (Mahoney 2005, "Adaptive
// weighing of context models for lossless data compression"). What an order (length of context) knows about a token
// selects a bin. The bin's probability is learnt from how often such tokens came. The log-odds of the bins are summed
// with learnt weights (gradient descent), one set for each pair of longest context seen before and longest context in
// which the token was seen.
//
// Learning is online and starts from built-in values, so that the first proposals are sound.
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

    /// Starts from the built-in values, as reset() does.
    ContextMixer();
    /// Forgets everything learnt: restores the built-in bins and weights.
    void reset();

    /// Returns the bin of a token in one order, if the token was seen `count` times of `total` after the context of
    /// that order. `rank`: how many other tokens were seen there more recently.
    [[nodiscard]] static BinIndex seen(int order, std::uint32_t count, std::uint32_t total, std::size_t rank) {
        return bin(order, bucket(count), bucket(total - count), static_cast<int>(rank < 3 ? rank : 3));
    }
    /// Returns the bin of a token in one order, if it was never seen after the context of that order; `distinct` other
    /// tokens were, `total` times in all.
    [[nodiscard]] static BinIndex unseen(int order, std::uint32_t total, std::size_t distinct) {
        return bin(order, 0, bucket(total), bucket(static_cast<std::uint32_t>(distinct)) / 2);
    }
    /// Returns the bin of a token in order 0: it was seen `count` times of `total` tokens, last `age` tokens ago.
    [[nodiscard]] static BinIndex unigram(std::uint32_t count, std::uint32_t total, std::uint32_t age) {
        const int rarity = count == 0 ? kBuckets - 1 : std::bit_width(total) - std::bit_width(count);
        const int recency = count == 0 || age >= 256 ? 4 : age >= 64 ? 3 : age >= 16 ? 2 : age >= 4 ? 1 : 0;
        return bin(0, bucket(count), rarity < kBuckets ? rarity : kBuckets - 1, recency);
    }

    /// Returns the bin's log-odds, as of the last refresh().
    [[nodiscard]] float log_odds(BinIndex bin) const { return bins_[bin].log_odds; }

    /// Weights of the log-odds of each order, then a constant that is added.
    using Weights = std::array<float, kOrders + 1>;
    /// Returns the weights for a token whose longest known context has `highest` tokens, on a path whose longest
    /// context seen before has `longest`. learn() changes them.
    [[nodiscard]] const Weights& weights(int longest, int highest) const { return weights_[set_of(longest, highest)]; }

    /// Learns from one candidate that came (hit = 1) or did not come (0). `bins`: its bins of orders 0 to `longest`.
    /// `predicted`: the probability that was computed from them. `longest`, `highest`: as for weights(). Call refresh()
    /// after the last candidate, before log_odds() is used again.
    void learn(std::span<const BinIndex> bins, int longest, int highest, float predicted, float hit);
    /// Computes the log-odds of the bins that learn() has changed.
    void refresh();

    /// Returns the learnt state for a file; restore() computes the log-odds from it.
    [[nodiscard]] std::vector<float> state() const;
    /// Replaces the state. Returns false, and changes nothing, if `state` has another size or values out of range.
    [[nodiscard]] bool restore(std::span<const float> state);

private:
    static constexpr int kBuckets = 8;  // classes of a count, see bucket()
    // Classes of a follower's rank, or of the number of distinct followers, or of a recency: each has this many.
    static constexpr int kRanks = 5;

    struct Bin {
        float probability = 0.0F;
        float n = 0.0F;  // observations, at most kMemory
        float log_odds = 0.0F;
        bool changed = false;
    };

    // Returns the class of the count `n`, 0 to 7: of counts 0, 1, 2, 3, 4-5, 6-9, 10-20, 21 and more.
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
    std::vector<BinIndex> changed_;  // bins whose log_odds are out of date
};

}  // namespace slipstream::draft
