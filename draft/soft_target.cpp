#include "draft/soft_target.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace slipstream::draft {

namespace {

// exp(x) for x in [-80, 0] within 0.4 %: the exponent's bits hold the whole part of x / log(2), a parabola the rest
// (Schraudolph 1999, "A fast, compact approximation of the exponential function", with one more term). A loop over it
// is vectorised.
float rough_exp(float x) {
    const float y = x * 1.44269504F + 127.0F;
    const float whole = static_cast<float>(static_cast<std::int32_t>(y));
    const float part = y - whole;
    const float mantissa = part * (0.6562F + 0.3438F * part);  // 2^part - 1
    return std::bit_cast<float>(static_cast<std::int32_t>((whole + mantissa) * 8388608.0F));
}

}  // namespace

SoftTarget soft_target(std::span<const float> logits, double temperature) {
    SoftTarget target;
    target.inverse_temperature = static_cast<float>(1.0 / temperature);
    target.greatest = -3.4e38F;
    for (const float logit : logits) target.greatest = std::max(target.greatest, logit);
    float sum = 0.0F;
    for (const float logit : logits)
        sum += rough_exp(std::max(-80.0F, (logit - target.greatest) * target.inverse_temperature));  // NaN is less
    target.sum = sum;
    return target;
}

}  // namespace slipstream::draft
