#include "draft/control/crew_choice.h"

#include <algorithm>
#include <utility>

namespace slipstream::draft {

namespace {

constexpr double kDecay = 0.97;             // of what earlier passes count
constexpr double kDear = 0.08;              // of a pass: where everyone takes more, the quick crew begins
constexpr std::int64_t kYoung = 40;         // passes of it before everyone is compared with the others
constexpr std::int64_t kLongYoung = 160;    // the same where light tables find nothing in the text
constexpr std::int64_t kTrial = 8;          // passes with everyone before a choice
constexpr std::int64_t kClearTrial = 4;     // the same where one crew is far better
constexpr std::int64_t kQuickTrial = 12;    // passes of the quick crew before the light tables may take over
constexpr std::int64_t kFirstStretch = 64;  // passes of another crew
constexpr std::int64_t kLongestStretch = 512;
constexpr std::int64_t kLongTime = 48;  // passes with everyone, after which old figures count less
constexpr double kClearlyBetter = 1.01;
constexpr double kFarBetter = 1.08;
constexpr double kNextToNothing = 0.1;  // of the guesses that come true
constexpr double kOthersRate = 0.1;
// Part of the others' time with everyone that crews without heavy tables may need: about what is measured.
constexpr double kHope = 0.3;
constexpr double kLightHope = 0.15;
constexpr double kMostSurprise = 2.0;  // a pass that took far longer had the processor taken away
constexpr double kRemembered = 0.5;    // of what is known of everyone, when everyone is asked again
constexpr double kForgotten = 0.15;    // of what other crews took, in a long time without them

}  // namespace

CrewChoice::Sums CrewChoice::sums_of(const WalkShares& shares, const CrewSeconds& seconds) {
    return {.tokens = shares.tokens,
            .by_tables = shares.by_tables,
            .by_quick = shares.by_quick,
            .by_light = shares.by_light,
            .pass = seconds.pass,
            .model = seconds.model,
            .model_if_quick = seconds.model + shares.model_seconds,
            .passes = 1.0};
}

void CrewChoice::Sums::add(const Sums& more) {
    tokens += more.tokens;
    by_tables += more.by_tables;
    by_quick += more.by_quick;
    by_light += more.by_light;
    pass += more.pass;
    model += more.model;
    model_if_quick += more.model_if_quick;
    passes += more.passes;
}

void CrewChoice::Sums::keep(double part) {
    for (double* sum : {&tokens, &by_tables, &by_quick, &by_light, &pass, &model, &model_if_quick, &passes})
        *sum *= part;
}

// Seconds that a crew needs beside the draft model, as far as is hoped: tables as with everyone, others a part of it.
double CrewChoice::hope(Crew crew) const {
    const double with_everyone = others_[static_cast<std::size_t>(Crew::Everyone)];
    if (crew == Crew::Quick) return kHope * with_everyone;
    return crew == Crew::Light ? kLightHope * with_everyone : with_everyone;
}

double CrewChoice::others(Crew crew) const {
    const double known = others_[static_cast<std::size_t>(crew)];
    return known > 0.0 ? known : hope(crew);
}

// The crew that commits most tokens a second, if that is `margin` times what everyone does.
Crew CrewChoice::best(double margin) const {
    const Sums& sums = with_everyone_;
    const double everyone = sums.tokens / (sums.pass + sums.model + sums.passes * others(Crew::Everyone));
    const double tables = sums.by_tables / (sums.pass + sums.passes * others(Crew::Tables));
    const double quick = sums.by_quick / (sums.pass + sums.model_if_quick + sums.passes * others(Crew::Quick));
    const bool light_does = sums.by_light > 0.0 && (sums.by_quick == 0.0 || light_would_do());
    const double light = light_does ? sums.by_light / (sums.pass + sums.passes * others(Crew::Light)) : 0.0;
    const double most = std::max({tables, quick, light});
    if (most < margin * everyone) return Crew::Everyone;
    if (most == tables) return Crew::Tables;
    return light_does ? Crew::Light : Crew::Quick;
}

// Passes of the quick crew tell of both as well as those with everyone do.
bool CrewChoice::light_would_do() const {
    Sums sums = with_everyone_;
    sums.add(with_quick_);
    const double quick = sums.by_quick / (sums.pass + sums.model_if_quick + sums.passes * others(Crew::Quick));
    return sums.by_light / (sums.pass + sums.passes * others(Crew::Light)) > kClearlyBetter * quick;
}

// Where light tables find next to nothing in the text, the others have little to find either.
bool CrewChoice::text_is_new() const {
    const Sums& sums = with_quick_;
    return crew_ == Crew::Quick && sums.by_light > 0.0 &&
           sums.by_light - sums.passes < kNextToNothing * (sums.tokens - sums.passes);
}

void CrewChoice::begin(Crew crew, std::int64_t stretch) {
    crew_ = crew;
    stretch_ = stretch;
    n_passes_ = 0;
}

void CrewChoice::reset() {
    const bool is_dear = is_dear_;
    *this = CrewChoice();
    has_begun_ = is_dear_ = is_dear;
    if (is_dear) begin(Crew::Quick, kYoung);
}

void CrewChoice::record(const WalkShares& shares, const CrewSeconds& seconds) {
    // A crew's first pass also pays for what it missed before.
    if (++n_passes_ == 1) {
        if (std::exchange(has_begun_, true)) return;
        is_dear_ = shares.by_quick > 0.0 && seconds.others > kDear * seconds.pass;
        if (is_dear_) begin(Crew::Quick, kYoung);
        return;
    }
    double& others = others_[static_cast<std::size_t>(crew_)];
    others = others == 0.0 ? seconds.others
                           : others + kOthersRate * (std::min(seconds.others, kMostSurprise * others) - others);
    if (crew_ == Crew::Everyone) return record_everyone(shares, seconds);
    if (crew_ == Crew::Quick) {
        with_quick_.keep(kDecay);
        with_quick_.add(sums_of(shares, seconds));
        if (n_passes_ >= kQuickTrial && light_would_do()) {
            last_choice_ = Crew::Light;
            return begin(Crew::Light, kFirstStretch);
        }
    }
    if (n_passes_ < stretch_) return;
    if (!has_compared_ && stretch_ < kLongYoung && text_is_new()) {
        stretch_ = std::min(2 * stretch_, kLongYoung);
        return;
    }
    with_everyone_.keep(kRemembered);
    with_quick_.keep(kRemembered);
    begin(Crew::Everyone, stretch_);
}

void CrewChoice::record_everyone(const WalkShares& shares, const CrewSeconds& seconds) {
    with_everyone_.keep(kDecay);
    with_everyone_.add(sums_of(shares, seconds));
    is_dear_ = shares.by_quick > 0.0 && with_everyone_.passes * others(Crew::Everyone) > kDear * with_everyone_.pass;
    if (n_passes_ >= kClearTrial) {
        has_compared_ = true;
        if (const Crew chosen = best(n_passes_ < kTrial ? kFarBetter : kClearlyBetter); chosen != Crew::Everyone) {
            const std::int64_t stretch =
                chosen == last_choice_ ? std::clamp(2 * stretch_, kFirstStretch, kLongestStretch) : kFirstStretch;
            last_choice_ = chosen;
            return begin(chosen, stretch);
        }
    }
    if (n_passes_ % kLongTime != 0) return;
    last_choice_ = Crew::Everyone;
    for (const Crew crew : {Crew::Tables, Crew::Quick, Crew::Light})
        if (double& known = others_[static_cast<std::size_t>(crew)]; known > 0.0)
            known += kForgotten * (hope(crew) - known);
}

}  // namespace slipstream::draft
