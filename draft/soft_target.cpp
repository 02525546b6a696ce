#include "draft/soft_target.h"

#include <cmath>

#include "draft/logit_row.h"
#include "runtime/sampling/greatest.h"

namespace slipstream::draft {

SoftTarget soft_target(std::span<const float> logits, double temperature) {
    const float greatest = greatest_of(logits);
    return {.greatest = greatest,
            .inverse_temperature = static_cast<float>(1.0 / temperature),
            .sum = std::exp(log_normaliser(logits, greatest, static_cast<float>(temperature)))};
}

}  // namespace slipstream::draft
