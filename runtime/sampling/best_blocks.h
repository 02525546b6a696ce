// Finds the logits of a row that may be among its best k, without looking at most of them twice.
//
// The maxima of blocks of 16 logits are taken. What k of the maxima reach, the best k logits reach as well, and blocks
// whose maximum does not are passed over. The k-th greatest of the maxima need not be known exactly: they are counted
// by steps from the greatest down, in linear time and without a branch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sampling/greatest.h"

namespace slipstream {

class BestBlocks {
public:
    explicit BestBlocks(std::size_t vocab);

    /// Looks at a row, [vocab], which stays as it is until the next one. Returns the greatest logit; -inf where none is
    /// above it. NaN is nothing.
    float look(std::span<const float> logits);
    /// A bound that at least `k` logits reach, k > 0, as a rule few more; -inf where it would leave out none.
    [[nodiscard]] float bound(std::size_t k);
    /// The ids of logits that are at least `bound` and above -inf, ascending. Valid until the next call.
    [[nodiscard]] std::span<const std::uint32_t> reaching(float bound);

private:
    [[nodiscard]] float exact_bound(std::size_t k);

    std::span<const float> logits_;
    float greatest_ = 0.0F;
    std::vector<float> best_;         // [ceil(vocab / kGreatestBlock)]
    std::vector<float> sorted_;       // the same, partly sorted
    std::vector<std::uint32_t> ids_;  // [vocab]
};

}  // namespace slipstream
