// The target's own probability of a token, from its logits at a temperature, before filters: what estimates are learnt
// from where the token that came was drawn.
#pragma once

#include <cmath>
#include <span>

#include "runtime/pass/logit_rows.h"

namespace slipstream::draft {

struct TargetSoftmax {
    float greatest = 0.0F;  // of the logits
    float inverse_temperature = 1.0F;
    float sum = 1.0F;  // of exp((logit - greatest) / temperature)

    [[nodiscard]] float probability(float logit) const {
        const float p = std::exp((logit - greatest) * inverse_temperature) / sum;
        return p >= 0.0F ? p : 0.0F;  // of what is no number: nothing
    }
};

/// Of a row of logits [vocab], temperature > 0. The sum is within 1 % (it is only learnt from); NaN counts as nothing.
[[nodiscard]] TargetSoftmax target_softmax(std::span<const float> logits, double temperature);

/// The same by tokens, of a row that may lie on a device. From its head, where that has a sum at the temperature:
/// tokens that it does not hold share what its own leave of the mass, none more than the head's last. Only learnt from,
/// and what is that unlikely teaches little. Else from the row.
class TargetProbabilities {
public:
    TargetProbabilities(const LogitRows& rows, std::int64_t row, double temperature);
    [[nodiscard]] float probability(TokenId token) const;

private:
    TargetSoftmax target_;
    std::span<const float> logits_;  // [vocab]; empty: the head serves
    TopLogits head_;
    float beyond_ = 0.0F;
};

}  // namespace slipstream::draft
