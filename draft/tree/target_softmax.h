// The target's probability of a token, from its logits at a temperature, before filters. Estimates are learnt from it
// if the token that came was drawn with noise.
#pragma once

#include <cmath>
#include <span>

#include "runtime/pass/logit_rows.h"

namespace slipstream::draft {

/// The softmax of one row of logits.
struct TargetSoftmax {
    float greatest = 0.0F;  // greatest logit of the row
    float inverse_temperature = 1.0F;
    float sum = 1.0F;  // sum of exp((logit - greatest) / temperature) over the row

    /// Returns the probability of a token with this logit; 0 if `logit` is NaN.
    [[nodiscard]] float probability(float logit) const {
        const float p = std::exp((logit - greatest) * inverse_temperature) / sum;
        return p >= 0.0F ? p : 0.0F;  // NaN: 0
    }
};

/// Computes the softmax of a row of logits [vocab]; `temperature` > 0. The sum is within 1 %, enough for learning; NaN
/// counts as 0.
[[nodiscard]] TargetSoftmax target_softmax(std::span<const float> logits, double temperature);

/// The target's probabilities of the tokens of one row, which may be on a device. If the row's head (its best logits)
/// has a sum for this temperature, only the head is read: all tokens outside it get an equal part of the remaining
/// mass, at most the probability of the head's last token. That is enough for learning, since so improbable tokens
/// teach little. Otherwise the whole row is read.
class TargetProbabilities {
public:
    /// `rows` must outlive this object; `temperature` > 0.
    TargetProbabilities(const LogitRows& rows, std::int64_t row, double temperature);
    /// Returns the probability of `token`, in [0, vocab).
    [[nodiscard]] float probability(TokenId token) const;

private:
    TargetSoftmax target_;
    std::span<const float> logits_;  // [vocab]; empty: head_ is used
    TopLogits head_;
    float beyond_ = 0.0F;  // probability of each token outside head_
};

}  // namespace slipstream::draft
