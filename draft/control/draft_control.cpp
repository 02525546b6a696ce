#include "draft/control/draft_control.h"

#include <algorithm>
#include <cmath>

namespace slipstream::draft {

namespace {

constexpr double kRecent = 0.97;       // of what earlier passes count
constexpr double kMostSurprise = 2.0;  // a pass that took far longer had the processor taken away
constexpr double kNoticed = 0.02;      // of a plain pass: drafting in vain that costs less is no loss
constexpr double kTrialDecay = 0.95;
constexpr std::int64_t kFirstTrial = 24;  // passes before the first judgement: tables are empty at first
constexpr std::int64_t kLaterTrial = 6;
constexpr std::int64_t kLongestPause = 512;
constexpr double kClearGain = 1.05;
constexpr double kLittleGain = 1.3;  // over plain decoding
constexpr double kTrusted = 2.0;     // guessed tokens that expectations are believed for

}  // namespace

bool DraftControl::should_draft(std::int64_t text_tokens, bool probes) {
    curve_.move_to(text_tokens);
    ++back_off_.of_passes;
    if (trial_.pause > 0) {
        --trial_.pause;
        ++back_off_.passes;
        return false;
    }
    // What guessing gains is told by what a plain pass takes: where that is little, or the plan's word alone, and none
    // was seen of late, one is made.
    const double gain = curve_.plain_was_seen() ? kLittleGain : PassCurve::kDoubt;
    const bool matters = recent_.tokens > 0.0 && recent_.seconds * gain > recent_.tokens * curve_.at(1);
    return !probes || !curve_.wants_plain_pass(matters);
}

double DraftControl::seconds_per_token() const {
    const double plain = curve_.at(1);
    return recent_.tokens > 0.0 ? std::min(recent_.seconds / recent_.tokens, plain) : plain;
}

double DraftControl::realised_fraction() const {
    return (recent_.came + kTrusted) / (recent_.hoped + kTrusted);
}

void DraftControl::record(const PassOutcome& outcome) {
    if (!(outcome.pass_seconds > 0.0) || !std::isfinite(outcome.pass_seconds + outcome.draft_seconds)) return;
    curve_.add(outcome.n_nodes, outcome.pass_seconds);
    if (!outcome.guessed) return;
    if (outcome.n_nodes > 1 || outcome.draft_seconds > kNoticed * curve_.at(1)) judge(outcome);
    double seconds = outcome.pass_seconds + outcome.draft_seconds;
    if (recent_.passes > 0.0) seconds = std::min(seconds, kMostSurprise * recent_.seconds / recent_.passes);
    recent_.passes = kRecent * recent_.passes + 1.0;
    recent_.seconds = kRecent * recent_.seconds + seconds;
    recent_.tokens = kRecent * recent_.tokens + static_cast<double>(outcome.n_tokens);
    if (outcome.expected > 0.0) {
        recent_.hoped = kRecent * recent_.hoped + outcome.expected - 1.0;
        recent_.came = kRecent * recent_.came + static_cast<double>(outcome.n_tokens) - 1.0;
    }
}

void DraftControl::judge(const PassOutcome& outcome) {
    // A trial's first pass also pays for what the proposers missed during the pause.
    if (++trial_.n == 1) return;
    const double tokens = outcome.expected > 0.0 ? 1.0 + realised_fraction() * (outcome.expected - 1.0)
                                                 : static_cast<double>(outcome.n_tokens);
    trial_.seconds = kTrialDecay * trial_.seconds + outcome.pass_seconds + outcome.draft_seconds;
    trial_.plain_seconds = kTrialDecay * trial_.plain_seconds + tokens * curve_.at(1);
    if (trial_.plain_seconds > kClearGain * trial_.seconds && trial_.n >= kFirstTrial) trial_.next_pause = kFirstPause;
    const std::int64_t enough = trial_.next_pause == kFirstPause ? kFirstTrial : kLaterTrial;
    if (trial_.n < enough || trial_.plain_seconds >= trial_.seconds) return;
    back_off_.slowdown = trial_.seconds / trial_.plain_seconds;
    trial_.pause = trial_.next_pause;
    trial_.next_pause = std::min(2 * trial_.next_pause, kLongestPause);
    trial_.n = 0;
    trial_.seconds = trial_.plain_seconds = 0.0;
}

}  // namespace slipstream::draft
