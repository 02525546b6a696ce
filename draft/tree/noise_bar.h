// Tells tokens that cannot be the best of log p + gumbel from those that may, without a logarithm.
//
// A token outranks r only if gumbel > r - log p. Since gumbel = -log(-log(u)) and -log(u) >= 1 - u, gumbel is at most
// -log(1 - u), so that 1 - u < p exp(-r) must hold: one multiplication of what is known of r, one comparison with the
// random word. Of a whole vocabulary a few tokens pass.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace slipstream::draft {

class NoiseBar {
public:
    /// From now on only tokens that may outrank `rank` pass; before the first call all do.
    void raise(float rank) {
        constexpr float slack = 1.0001F;  // for the rounding of everything below
        factor_ = std::exp(-rank) * 0x1p32F * slack;
    }
    /// Whether a token of probability `p` (positive, normal) whose noise comes from `word` (noise_block) may pass. 1 -
    /// u is ~word + 1/2 in units of 2^-32; the half is left out, so that none is refused wrongly.
    [[nodiscard]] bool may_pass(float p, std::uint32_t word) const { return static_cast<float>(~word) <= p * factor_; }

private:
    float factor_ = std::numeric_limits<float>::infinity();
};

}  // namespace slipstream::draft
