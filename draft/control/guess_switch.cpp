#include "draft/control/guess_switch.h"

#include <algorithm>

namespace slipstream::draft {

namespace {

constexpr double kDecay = 0.95;           // of what earlier passes count
constexpr std::int64_t kFirstTrial = 24;  // passes before the first judgement: tables are empty at first
constexpr std::int64_t kLaterTrial = 6;
constexpr std::int64_t kFirstRest = 16;
constexpr std::int64_t kLongestRest = 512;
constexpr double kLongDecay = 0.99;
constexpr double kTrust = 16.0;  // tokens that expectations are believed for
constexpr double kClearGain = 1.05;

}  // namespace

bool GuessSwitch::take_turn() {
    if (rest_ == 0) return true;
    --rest_;
    return false;
}

void GuessSwitch::record(double expected, std::int64_t n_tokens, double seconds, double plain_seconds) {
    if (seconds <= 0.0 || plain_seconds <= 0.0) return;
    // A trial's first pass also pays for what the guessers missed during the rest.
    if (++n_trial_ == 1) return;
    expected_ = kLongDecay * expected_ + expected;
    committed_ = kLongDecay * committed_ + static_cast<double>(n_tokens);
    const double came_true = (committed_ + kTrust) / (expected_ + kTrust);
    seconds_ = kDecay * seconds_ + seconds;
    plain_seconds_ = kDecay * plain_seconds_ + expected * came_true * plain_seconds;
    if (plain_seconds_ > kClearGain * seconds_ && n_trial_ >= kFirstTrial) next_rest_ = kFirstRest;
    const std::int64_t enough = next_rest_ == kFirstRest ? kFirstTrial : kLaterTrial;
    if (n_trial_ < enough || plain_seconds_ >= seconds_) return;
    rest_ = next_rest_;
    next_rest_ = std::min(2 * next_rest_, kLongestRest);
    n_trial_ = 0;
    seconds_ = plain_seconds_ = 0.0;
}

}  // namespace slipstream::draft
