// The target's own probability of a token, from its logits at a temperature, before filters: what estimates are learnt
// from where the token that came was drawn.
#pragma once

#include <cmath>
#include <span>

namespace slipstream::draft {

struct SoftTarget {
    float greatest = 0.0F;  // of the logits
    float inverse_temperature = 1.0F;
    float sum = 1.0F;  // of exp((logit - greatest) / temperature)

    [[nodiscard]] float probability(float logit) const {
        const float p = std::exp((logit - greatest) * inverse_temperature) / sum;
        return p >= 0.0F ? p : 0.0F;  // of what is no number: nothing
    }
};

/// Of a row of logits [vocab], temperature > 0. The sum is within 1 % (it is only learnt from); NaN counts as nothing.
[[nodiscard]] SoftTarget soft_target(std::span<const float> logits, double temperature);

}  // namespace slipstream::draft
