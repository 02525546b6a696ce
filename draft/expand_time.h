// What a pass over n tokens takes, learnt from the passes before. Sizes are kept in classes by powers of two; each
// class holds a running median: a sample moves it by a factor that shrinks from 1.5 to 1.02 with their number, however
// far away the sample lies, so that a pass that lost its core for a while hardly counts. Between classes: linear.
#pragma once

#include <array>
#include <cstdint>

namespace slipstream::draft {

class ExpandTime {
public:
    /// A pass over `n_tokens` (>= 1) took `seconds`.
    void add(std::int64_t n_tokens, double seconds);
    /// Seconds of a pass over `n_tokens` (>= 1); 0 before anything is known. Beyond what was seen, above and
    /// below, in proportion to the tokens.
    [[nodiscard]] double seconds(std::int64_t n_tokens) const;

private:
    struct Class {
        std::int64_t n_samples = 0;
        double tokens = 0.0;  // running mean
        double seconds = 0.0;
    };
    std::array<Class, 16> classes_;  // 1, 2-3, 4-7, ...
};

}  // namespace slipstream::draft
