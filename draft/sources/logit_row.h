// What the tables learn from a row of logits: its best tokens, and how sure the model was of them.
//
// The best k are found in one sweep: a block of 32 values is compared with the k-th best so far, which compilers turn
// into vectors, and looked at only where it holds a better one: few do. Ties go to the lowest id. Values that are NaN
// or -inf are no candidates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream::draft {

/// A token and its logit as it came.
struct TopToken {
    TokenId token = 0;
    float logit = 0.0F;
};

class RowTop {
public:
    /// For at most `max_k` tokens of a row.
    explicit RowTop(std::int64_t max_k);

    /// The best min(k, max_k) tokens, best first; fewer where fewer are above -inf. Valid until the next call.
    /// Allocates nothing.
    [[nodiscard]] std::span<const TopToken> best(std::span<const float> logits, std::int64_t k);

    /// The same of row `row`: from its head where that has as many, else from the row.
    [[nodiscard]] std::span<const TopToken> best(const LogitRows& rows, std::int64_t row, std::int64_t k);

private:
    std::vector<TopToken> top_;  // [max_k]
};

/// log of the sum of exp((logit - greatest) / temperature) over the row, `greatest` being its greatest logit: what
/// turns (logit - greatest) / temperature into a log probability. At least 0 where the greatest is in the row. Relative
/// error of the sum below 2e-4; values that are not numbers, and those 87 temperatures below the greatest, count as 0.
/// `temperature` > 0.
[[nodiscard]] float log_normaliser(std::span<const float> logits, float greatest, float temperature);

/// The same in about a quarter of the time, from a quarter of the row and its best tokens `top` (RowTop::best, not
/// empty), which count exactly. For guesses: off by about a tenth where the row is flat, by nothing where it is not.
[[nodiscard]] float estimated_log_normaliser(std::span<const float> logits, std::span<const TopToken> top,
                                             float temperature);

/// The same of row `row`: the device's own sum (within kLogitSumError) where its head has one at `temperature`, else
/// estimated from the row.
[[nodiscard]] float estimated_log_normaliser(const LogitRows& rows, std::int64_t row, std::span<const TopToken> top,
                                             float temperature);

}  // namespace slipstream::draft
