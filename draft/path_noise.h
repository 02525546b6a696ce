// The noise of drafter-invariant sampling as the guessers see it. It is known before anything is drafted (design E2):
// the target will take the argmax of log p + gumbel(seed, position, token), so guesses are ranked by that and not by
// probability alone. (Daliri, Musco, Suresh 2024, arXiv 2408.07978.)
#pragma once

#include <cstdint>

#include "kernels/base/noise.h"
#include "runtime/model_config.h"

namespace slipstream::draft {

class PathNoise {
public:
    /// No noise: greedy decoding, or ranking that ignores it.
    PathNoise() = default;
    explicit PathNoise(std::uint64_t seed) : seed_(seed), present_(true) {}

    [[nodiscard]] bool present() const { return present_; }
    /// gumbel(seed, position, token); 0 without noise. `position`: absolute, of the token itself.
    [[nodiscard]] float gumbel(std::int64_t position, TokenId token) const {
        return present_ ? gumbel_noise(seed_, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(token))
                        : 0.0F;
    }
    /// log(probability) + gumbel: the higher, the likelier is the token to be the target's. `probability` > 0, normal.
    [[nodiscard]] float rank(float probability, std::int64_t position, TokenId token) const {
        return log_float(probability) + gumbel(position, token);
    }

private:
    std::uint64_t seed_ = 0;
    bool present_ = false;
};

}  // namespace slipstream::draft
