#include "draft/control/draft_control.h"

#include <algorithm>
#include <cmath>

namespace slipstream::draft {

namespace {

constexpr double kRecent = 0.97;  // factor per pass by which the sums over earlier passes with drafting decay
// Cap on a pass's time, in mean times of recent passes: a slower one was probably preempted.
constexpr double kMostSurprise = 2.0;
// Fraction of a plain pass's time: a pass whose drafting found nothing and took less is not judged.
constexpr double kNoticed = 0.02;
// Factor per pass by which the times of a trial (passes with drafting between two pauses) decay.
constexpr double kTrialDecay = 0.95;
// Passes with drafting before the first judgement: tables are empty at first.
constexpr std::int64_t kFirstTrial = 24;
constexpr std::int64_t kLaterTrial = 6;      // passes with drafting after a pause before they are judged
constexpr std::int64_t kLongestPause = 512;  // passes without drafting in the longest pause
// Time of plain decoding / time with drafting above which the next pause is kFirstPause again.
constexpr double kClearGain = 1.05;
// Time of plain decoding / time with drafting below which a plain pass must have been measured recently.
constexpr double kLittleGain = 1.3;
// Prior of realised_fraction(): draft tokens that were expected and accepted before any data.
constexpr double kTrusted = 2.0;

}  // namespace

bool DraftControl::should_draft(std::int64_t text_tokens, bool probes, ViewReady ready) {
    curve_.move_to(text_tokens);
    ready_ = ready;
    ++back_off_.of_passes;
    if (trial_.pause > 0) {
        --trial_.pause;
        ++back_off_.passes;
        return false;
    }
    // The gain of drafting is relative to the time of a plain pass. If the gain is small, or if no plain pass was ever
    // measured and only the plan gives its time, a plain pass is due unless one was measured recently.
    const double gain = curve_.plain_was_seen() ? kLittleGain : PassCurve::kDoubt;
    const bool costs_little = ready == ViewReady::No && !curve_.plain_was_seen();
    const bool matters =
        costs_little || (recent().tokens > 0.0 && recent().seconds * gain > recent().tokens * curve_.at(1));
    return !probes || !curve_.wants_plain_pass(matters);
}

double DraftControl::seconds_per_token() const {
    const double plain = curve_.at(1);
    return recent().tokens > 0.0 ? std::min(recent().seconds / recent().tokens, plain) : plain;
}

double DraftControl::realised_fraction() const {
    return (recent().came + kTrusted) / (recent().hoped + kTrusted);
}

void DraftControl::record(const PassOutcome& outcome) {
    if (!(outcome.pass_seconds > 0.0) || !std::isfinite(outcome.pass_seconds + outcome.draft_seconds)) return;
    curve_.add(outcome.n_nodes, outcome.pass_seconds);
    if (!outcome.guessed) return;
    if (outcome.n_nodes > 1 || outcome.draft_seconds > kNoticed * curve_.at(1)) judge(outcome);
    double seconds = outcome.pass_seconds + outcome.draft_seconds;
    Recent& of = recent();
    if (of.passes > 0.0) seconds = std::min(seconds, kMostSurprise * of.seconds / of.passes);
    of.passes = kRecent * of.passes + 1.0;
    of.seconds = kRecent * of.seconds + seconds;
    of.tokens = kRecent * of.tokens + static_cast<double>(outcome.n_tokens);
    if (outcome.expected > 0.0) {
        of.hoped = kRecent * of.hoped + outcome.expected - 1.0;
        of.came = kRecent * of.came + static_cast<double>(outcome.n_tokens) - 1.0;
    }
}

void DraftControl::judge(const PassOutcome& outcome) {
    // The first pass of a trial also pays for the tokens that the sources did not see during the pause, so it is left
    // out.
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
