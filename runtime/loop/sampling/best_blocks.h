// Finds the logits of a row that may be among its best k, without sorting the row.
//
// It computes the maxima of blocks of logits. A bound that k of the maxima reach is reached by the best k logits, too;
// a second sweep finds all logits that reach it. A block is 16 logits that are a stride apart, so that the maxima of
// neighbouring blocks form a vector. The k-th greatest maximum need not be known exactly: maxima are counted in steps
// from the greatest down, in linear time and without branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/sampling/lanes.h"

namespace slipstream {

class BestBlocks {
public:
    explicit BestBlocks(std::size_t vocab, Lanes lanes = widest_lanes());

    /// Computes the block maxima of `logits` [vocab], which must stay valid and unchanged until the next scan().
    /// Returns the greatest logit; -inf if none is above it. NaN is ignored.
    float scan(std::span<const float> logits);
    /// Returns a bound that at least `k` logits of the row reach, k > 0 (CHECKed), usually few more; -inf if it would
    /// exclude none.
    [[nodiscard]] float bound(std::size_t k);
    /// Returns the ids of logits of the row that are at least `bound` and above -inf, ascending. Valid until the next
    /// call.
    [[nodiscard]] std::span<const std::uint32_t> reaching(float bound);

private:
    [[nodiscard]] float exact_bound(std::size_t k);

    Lanes lanes_;
    std::size_t vocab_;
    std::size_t stride_;  // distance of the logits of a block; also the number of blocks
    std::span<const float> logits_;
    float greatest_ = 0.0F;
    float lowest_ = 0.0F;             // lowest of best_
    std::vector<float> best_;         // [stride_], maxima of the blocks; -inf if a block has no number
    std::vector<float> sorted_;       // [stride_], partly sorted copy of best_
    std::vector<std::uint32_t> ids_;  // [vocab]
};

}  // namespace slipstream
