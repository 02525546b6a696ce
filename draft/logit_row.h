// What sources learn from a row of logits: its best tokens, and the sum that turns logits into probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/loop/sampling/best_blocks.h"
#include "runtime/model/model_config.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream::draft {

/// A token and its logit, as the model computed it.
struct TopToken {
    TokenId token = 0;
    float logit = 0.0F;
};

/// Finds the best tokens of logits rows. Reuses its buffers from one row to the next. Not thread-safe.
class RowTop {
public:
    /// Finds at most `max_k` (> 0, CHECKed) tokens of a row of `vocab` logits.
    RowTop(std::int64_t max_k, std::int64_t vocab);

    /// Returns the best min(k, max_k) tokens, best first, ties to the lower id; fewer if fewer logits are above -inf
    /// (NaN is not). k > 0 (CHECKed). Valid until the next call.
    [[nodiscard]] std::span<const TopToken> best(std::span<const float> logits, std::int64_t k);
    /// Returns the best min(k, max_k) tokens of row `row`, best first, valid until the next call: from the row's top
    /// logits (LogitRows::top()) if these are enough, else from the whole row.
    [[nodiscard]] std::span<const TopToken> best(const LogitRows& rows, std::int64_t row, std::int64_t k);

private:
    std::size_t max_k_;
    BestBlocks blocks_;
    std::vector<TopToken> top_;  // best first
};

/// Returns the log of the sum of exp((logit - greatest) / temperature) over the row; `greatest` must be its greatest
/// logit. Subtracting it from (logit - greatest) / temperature gives a log probability. At least 0. The relative error
/// of the sum is below 2e-4; NaN, and logits 87 temperatures below the greatest, count as 0. `temperature` > 0.
[[nodiscard]] float log_normaliser(std::span<const float> logits, float greatest, float temperature);

/// Estimates log_normaliser() of row `row` from about 8192 of its logits and its best tokens `top` (RowTop::best(), not
/// empty, CHECKed), which count exactly. If the row's top logits have the device's own sum for `temperature`, returns
/// the log of that (within kLogitSumError). For drafting: off by about a tenth if the row is flat, exact if it is not.
[[nodiscard]] float estimated_log_normaliser(const LogitRows& rows, std::int64_t row, std::span<const TopToken> top,
                                             float temperature);

}  // namespace slipstream::draft
