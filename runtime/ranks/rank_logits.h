// Rows of logits whose columns one or several ranks make: those of several are put together on the host.
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
    /// Up to `max_rows` rows, of all columns that the models of `ranks` make, in the order of `ranks` (CHECKed).
    RankLogits(std::span<const Rank> ranks, std::int64_t max_rows);

    [[nodiscard]] std::int64_t vocab() const { return vocab_; }
    /// [ranks]: each rank's columns, which a pass fills in; of several ranks whole rows in host memory.
    [[nodiscard]] std::span<LogitRows> parts() { return parts_; }
    /// The first `n_rows`, once the ranks' streams are synchronized; valid until the next call. An only rank's rows are
    /// returned as they are.
    [[nodiscard]] LogitRows gather(std::int64_t n_rows);

private:
    std::vector<LogitRows> parts_;       // [ranks]
    std::vector<std::int64_t> columns_;  // [ranks]
    std::int64_t vocab_ = 0;
    std::unique_ptr<float[]> rows_;  // [max_rows, vocab]; null with one rank
};

}  // namespace slipstream
