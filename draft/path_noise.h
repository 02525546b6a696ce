// The noise of drafter-invariant sampling (E2) as sources use it. It is known before anything is drafted: the target
// will take the argmax of log p + gumbel(seed, position, token), so proposals are ranked by that sum and not by
// probability alone. (Daliri, Musco, Suresh 2024, arXiv 2408.07978.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "draft/log_odds.h"
#include "kernels/base/noise.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

/// The Gumbel noise with which the target samples, for one seed, or no noise. Not thread-safe: copies share a cache, so
/// each thread needs an object of its own that is no copy.
class PathNoise {
public:
    /// Makes an absent noise: for greedy decoding, or for ranking that ignores the noise.
    PathNoise() = default;
    /// Makes the noise of `seed`, which must be the target's sampling seed.
    explicit PathNoise(std::uint64_t seed)
        : seed_(seed), present_(true), known_(std::make_shared<std::array<Known, kKnown>>()) {}

    /// Returns false if the noise is absent.
    [[nodiscard]] bool present() const { return present_; }
    /// Returns the seed, for callers that compute the noise of whole blocks of tokens (noise_block()); 0 if absent.
    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    /// Returns gumbel(seed, position, token); 0 if absent. `position`: absolute position of the token itself.
    [[nodiscard]] float gumbel(std::int64_t position, TokenId token) const {
        if (!present_) return 0.0F;
        const auto id = static_cast<std::uint32_t>(token);
        Known& known = (*known_)[(id * 0x9e3779b1U + static_cast<std::uint32_t>(position) * 0x85ebca77U) >> 20];
        if (known.position != position || known.token != token)
            known = {position, token, gumbel_noise(seed_, static_cast<std::uint64_t>(position), id)};
        return known.gumbel;
    }
    /// Returns log(probability) + gumbel: the higher, the more probably the token is the target's. `probability` must
    /// be positive and normal; `position` is the absolute position of the token.
    [[nodiscard]] float rank(float probability, std::int64_t position, TokenId token) const {
        return rough_log(probability) + gumbel(position, token);
    }

private:
    // A cached value. Several sources propose the same tokens at the same position, so the last ones are kept.
    struct Known {
        std::int64_t position = -1;
        TokenId token = 0;
        float gumbel = 0.0F;
    };
    static constexpr std::size_t kKnown = 4096;  // cached values; 12 bits of the hash select one

    std::uint64_t seed_ = 0;
    bool present_ = false;
    std::shared_ptr<std::array<Known, kKnown>> known_;  // null if absent; copies share it
};

}  // namespace slipstream::draft
