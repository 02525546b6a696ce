// The noise of drafter-invariant sampling as the proposers see it. It is known before anything is drafted (E2):
// the target will take the argmax of log p + gumbel(seed, position, token), so guesses are ranked by that and not by
// probability alone. (Daliri, Musco, Suresh 2024, arXiv 2408.07978.) One a thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "draft/log_odds.h"
#include "kernels/base/noise.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

class PathNoise {
public:
    /// No noise: greedy decoding, or ranking that ignores it.
    PathNoise() = default;
    explicit PathNoise(std::uint64_t seed)
        : seed_(seed), present_(true), known_(std::make_shared<std::array<Known, kKnown>>()) {}

    [[nodiscard]] bool present() const { return present_; }
    /// Of the noise, for those who make it for whole blocks of tokens at a time (noise_block); 0 without noise.
    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    /// gumbel(seed, position, token); 0 without noise. `position`: absolute, of the token itself.
    [[nodiscard]] float gumbel(std::int64_t position, TokenId token) const {
        if (!present_) return 0.0F;
        const auto id = static_cast<std::uint32_t>(token);
        Known& known = (*known_)[(id * 0x9e3779b1U + static_cast<std::uint32_t>(position) * 0x85ebca77U) >> 20];
        if (known.position != position || known.token != token)
            known = {position, token, gumbel_noise(seed_, static_cast<std::uint64_t>(position), id)};
        return known.gumbel;
    }
    /// log(probability) + gumbel: the higher, the likelier is the token to be the target's. `probability` > 0, normal.
    [[nodiscard]] float rank(float probability, std::int64_t position, TokenId token) const {
        return rough_log(probability) + gumbel(position, token);
    }

private:
    // Several sources name the same tokens at the same position: what was computed last is kept.
    struct Known {
        std::int64_t position = -1;
        TokenId token = 0;
        float gumbel = 0.0F;
    };
    static constexpr std::size_t kKnown = 4096;

    std::uint64_t seed_ = 0;
    bool present_ = false;
    std::shared_ptr<std::array<Known, kKnown>> known_;  // null without noise; copies share it
};

}  // namespace slipstream::draft
