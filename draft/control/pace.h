// How long a committed token takes of late, with all that passes and guessing take: what the tree builder weighs time
// by.
#pragma once

#include <algorithm>
#include <cstdint>

namespace slipstream::draft {

class Pace {
public:
    /// A pass with guesses committed `n_tokens` and took `seconds`, drafting and learning included.
    void add(std::int64_t n_tokens, double seconds) {
        // One that took far longer had the processor taken away.
        if (passes_ > 0.0) seconds = std::min(seconds, kMostSurprise * seconds_ / passes_);
        passes_ = kDecay * passes_ + 1.0;
        seconds_ = kDecay * seconds_ + seconds;
        tokens_ = kDecay * tokens_ + static_cast<double>(n_tokens);
    }
    /// 0 before the first pass.
    [[nodiscard]] double seconds_a_token() const { return tokens_ > 0.0 ? seconds_ / tokens_ : 0.0; }

private:
    static constexpr double kDecay = 0.97;
    static constexpr double kMostSurprise = 2.0;

    double passes_ = 0.0;
    double seconds_ = 0.0;
    double tokens_ = 0.0;
};

}  // namespace slipstream::draft
