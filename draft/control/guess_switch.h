// The off switch (design section 6): guessing stops by itself where it costs more than it brings, and is tried again
// now and then, ever more rarely, so that no text is slower than plain decoding beyond noise.
//
// Compared are tokens a second of late, all that guessing costs included, with one token a plain pass. Where guessing
// loses it rests for some passes; a trial that loses again doubles the rest. How many tokens one pass commits is a
// matter of luck, so what is summed up is what was expected of it, corrected by how expectations came true in the long
// run.
#pragma once

#include <cstdint>

namespace slipstream::draft {

class GuessSwitch {
public:
    /// Whether the next pass should carry guesses. Called once a pass.
    [[nodiscard]] bool take_turn();
    /// A pass with guesses was expected to commit `expected` tokens, did commit `n_tokens`, and took `seconds`,
    /// drafting and learning included; a plain pass would have taken `plain_seconds`.
    void record(double expected, std::int64_t n_tokens, double seconds, double plain_seconds);
    void reset() { *this = GuessSwitch(); }

private:
    std::int64_t rest_ = 0;  // passes without guesses that are still to come
    std::int64_t next_rest_ = 16;
    std::int64_t n_trial_ = 0;    // passes with guesses since the last rest
    double seconds_ = 0.0;        // that passes with guesses took of late, decaying
    double expected_ = 0.0;       // of many passes, decaying slowly
    double committed_ = 0.0;      // in the same
    double plain_seconds_ = 0.0;  // that the same tokens would have taken one by one
};

}  // namespace slipstream::draft
