// Finds the logits of a row that may be among its best k, without sorting them.
//
// The maxima of blocks are taken. What k of the maxima reach, the best k logits reach as well, and a second look finds
// who does. A block is 16 logits that lie a stride apart, so that the maxima of neighbouring blocks are a vector. The
// k-th greatest of the maxima need not be known exactly: they are counted by steps from the greatest down, in linear
// time and without a branch.
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

    /// Looks at a row, [vocab], which stays as it is until the next one. Returns the greatest logit; -inf where none is
    /// above it. NaN is nothing.
    float scan(std::span<const float> logits);
    /// A bound that at least `k` logits reach, k > 0, as a rule few more; -inf where it would leave out none.
    [[nodiscard]] float bound(std::size_t k);
    /// The ids of logits that are at least `bound` and above -inf, ascending. Valid until the next call.
    [[nodiscard]] std::span<const std::uint32_t> reaching(float bound);

private:
    [[nodiscard]] float exact_bound(std::size_t k);

    Lanes lanes_;
    std::size_t vocab_;
    std::size_t stride_;  // between the logits of a block
    std::span<const float> logits_;
    float greatest_ = 0.0F;
    float lowest_ = 0.0F;             // of the maxima
    std::vector<float> best_;         // [blocks], whole vectors of them; -inf where a block has no number
    std::vector<float> sorted_;       // the same, partly sorted
    std::vector<std::uint32_t> ids_;  // [vocab]
};

}  // namespace slipstream
