// What the tables learn from a row of logits: its best tokens, and how sure the model was of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/loop/sampling/best_blocks.h"
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
    /// For at most `max_k` tokens of a row, rows of `vocab` logits.
    RowTop(std::int64_t max_k, std::int64_t vocab);

    /// The best min(k, max_k) tokens, best first, of equals the lower id; fewer where fewer are above -inf (NaN is no
    /// candidate). Valid until the next call.
    [[nodiscard]] std::span<const TopToken> best(std::span<const float> logits, std::int64_t k);
    /// The same of row `row`: from its head where that has as many, else from the row.
    [[nodiscard]] std::span<const TopToken> best(const LogitRows& rows, std::int64_t row, std::int64_t k);

private:
    std::size_t max_k_;
    BestBlocks blocks_;
    std::vector<TopToken> top_;  // candidates, the best first
};

/// log of the sum of exp((logit - greatest) / temperature) over the row, `greatest` being its greatest logit: what
/// turns (logit - greatest) / temperature into a log probability. At least 0. Relative error of the sum below 2e-4;
/// values that are not numbers, and those 87 temperatures below the greatest, count as 0. `temperature` > 0.
[[nodiscard]] float log_normaliser(std::span<const float> logits, float greatest, float temperature);

/// About the same of row `row`, from about 8192 of its logits and its best tokens `top` (RowTop::best, not empty),
/// which count exactly; the device's own sum (within kLogitSumError) where its head has one at `temperature`. For
/// guesses: off by about a tenth where the row is flat, by nothing where it is not.
[[nodiscard]] float estimated_log_normaliser(const LogitRows& rows, std::int64_t row, std::span<const TopToken> top,
                                             float temperature);

}  // namespace slipstream::draft
