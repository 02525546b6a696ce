#include "draft/crew_choice.h"

#include <algorithm>

namespace slipstream::draft {

namespace {

constexpr double kDecay = 0.97;             // of what earlier passes count
constexpr std::int64_t kTrial = 12;         // passes with everyone before a choice
constexpr std::int64_t kFirstStretch = 64;  // passes of another crew
constexpr std::int64_t kLongestStretch = 128;
constexpr std::int64_t kLongTime = 4 * kTrial;  // passes with everyone, after which old figures count less
constexpr double kClearlyBetter = 1.01;
constexpr double kOthersRate = 0.1;
// Part of the others' time with everyone that a model alone may need: about what is measured (0.24 to 0.43).
constexpr double kHope = 0.3;
constexpr double kLightHope = 0.2;  // the same of light tables
constexpr double kMostSurprise = 2.0;  // a pass that took far longer had the processor taken away
constexpr double kRemembered = 0.3;    // of what is known of everyone, when everyone is asked again
constexpr double kForgotten = 0.15;    // of what other crews took, in a long time without them

}  // namespace

// Seconds that a crew needs beside the draft model, as far as is hoped: tables as with everyone, others a part of it.
double CrewChoice::hope(Crew crew) const {
    const double with_everyone = others_[static_cast<std::size_t>(Crew::Everyone)];
    if (crew == Crew::Model) return kHope * with_everyone;
    return crew == Crew::Light ? kLightHope * with_everyone : with_everyone;
}

// The crew that commits most tokens a second.
Crew CrewChoice::best() const {
    const auto others = [&](Crew crew) {
        const double known = others_[static_cast<std::size_t>(crew)];
        return sums_.passes * (known > 0.0 ? known : hope(crew));
    };
    const double everyone = sums_.tokens / (sums_.pass + sums_.model + others(Crew::Everyone));
    const double tables = sums_.by_tables / (sums_.pass + others(Crew::Tables));
    const double light = sums_.by_light / (sums_.pass + others(Crew::Light));
    const double model = sums_.by_model / (sums_.pass + sums_.model_alone + others(Crew::Model));
    const double most = std::max({tables, light, model});
    if (most < kClearlyBetter * everyone) return Crew::Everyone;
    return most == model ? Crew::Model : most == light ? Crew::Light : Crew::Tables;
}

void CrewChoice::choose() {
    const Crew chosen = best();
    stretch_ = chosen == last_choice_ ? std::min(2 * stretch_, kLongestStretch) : kFirstStretch;
    last_choice_ = crew_ = chosen;
    n_passes_ = 0;
}

void CrewChoice::record(const WalkShares& shares, const CrewSeconds& seconds) {
    // A crew's first pass also pays for what it missed before.
    if (++n_passes_ == 1) return;
    double& others = others_[static_cast<std::size_t>(crew_)];
    others = others == 0.0 ? seconds.others
                           : others + kOthersRate * (std::min(seconds.others, kMostSurprise * others) - others);
    if (crew_ == Crew::Everyone) {
        for (double* sum : sums_.all()) *sum *= kDecay;
        sums_.tokens += shares.tokens;
        sums_.by_tables += shares.by_tables;
        sums_.by_light += shares.by_light;
        sums_.by_model += shares.by_model;
        sums_.pass += seconds.pass;
        sums_.model += seconds.model;
        sums_.model_alone += seconds.model + shares.model_seconds;
        sums_.passes += 1.0;
        if (n_passes_ >= kTrial && best() != Crew::Everyone) return choose();
        if (n_passes_ % kLongTime == 0) {
            last_choice_ = Crew::Everyone;
            for (const Crew crew : {Crew::Tables, Crew::Light, Crew::Model})
                if (double& known = others_[static_cast<std::size_t>(crew)]; known > 0.0)
                    known += kForgotten * (hope(crew) - known);
        }
    } else if (n_passes_ >= stretch_) {
        crew_ = Crew::Everyone;
        n_passes_ = 0;
        for (double* sum : sums_.all()) *sum *= kRemembered;
    }
}

}  // namespace slipstream::draft
