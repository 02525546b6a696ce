// Rows of logits whose columns are computed by one or several ranks; those of several ranks are combined on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/pass/logit_rows.h"
#include "runtime/ranks/rank.h"

namespace slipstream {

class RankLogits {
public:
    /// Makes room for up to `max_rows` rows of all columns that the models of `ranks` compute. The columns of the ranks
    /// must follow one another in the order of `ranks` (CHECKed).
    RankLogits(std::span<const Rank> ranks, std::int64_t max_rows);

    [[nodiscard]] std::int64_t vocab() const { return vocab_; }
    /// Returns the columns of each rank, [ranks], which a pass sets. With several ranks, the pass must leave whole rows
    /// in host memory.
    [[nodiscard]] std::span<LogitRows> parts() { return parts_; }
    /// Returns the first `n_rows` rows, valid until the next call. The streams of the ranks must be synchronized. The
    /// rows of a single rank are returned without a copy.
    [[nodiscard]] LogitRows gather(std::int64_t n_rows);

private:
    std::vector<LogitRows> parts_;       // [ranks]
    std::vector<std::int64_t> columns_;  // [ranks]
    std::int64_t vocab_ = 0;
    std::unique_ptr<float[]> rows_;  // [max_rows, vocab]; null with one rank
};

}  // namespace slipstream
