#include "draft/crew_choice.h"

#include <algorithm>

namespace slipstream::draft {

namespace {

constexpr double kDecay = 0.97;             // of what earlier passes count
constexpr std::int64_t kTrial = 12;         // passes with everyone before a choice
constexpr std::int64_t kFirstStretch = 64;  // passes of another crew
constexpr std::int64_t kLongestStretch = 512;
constexpr double kClearlyBetter = 1.01;
constexpr double kOthersRate = 0.1;
constexpr double kHope = 0.3;
constexpr double kRemembered = 0.3;  // of what is known of everyone, when everyone is asked again

}  // namespace

// The crew that commits most tokens a second. Tables that were never tried alone are taken to need as long as with
// everyone, a model as long as hopes allow.
Crew CrewChoice::best() const {
    const double with_everyone = others_[static_cast<std::size_t>(Crew::Everyone)];
    const auto others = [&](Crew crew) {
        const double known = others_[static_cast<std::size_t>(crew)];
        return sums_.passes * (known > 0.0 ? known : crew == Crew::Tables ? with_everyone : kHope * with_everyone);
    };
    const double everyone = sums_.tokens / (sums_.pass + sums_.model + others(Crew::Everyone));
    const double tables = sums_.by_tables / (sums_.pass + others(Crew::Tables));
    const double model = sums_.by_model / (sums_.pass + sums_.model_alone + others(Crew::Model));
    if (std::max(tables, model) < kClearlyBetter * everyone) return Crew::Everyone;
    return tables > model ? Crew::Tables : Crew::Model;
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
    others = others == 0.0 ? seconds.others : others + kOthersRate * (seconds.others - others);
    if (crew_ == Crew::Everyone) {
        for (double* sum : sums_.all()) *sum *= kDecay;
        sums_.tokens += shares.tokens;
        sums_.by_tables += shares.by_tables;
        sums_.by_model += shares.by_model;
        sums_.pass += seconds.pass;
        sums_.model += seconds.model;
        sums_.model_alone += seconds.model + shares.model_seconds;
        sums_.passes += 1.0;
        if (n_passes_ >= kTrial && best() != Crew::Everyone) return choose();
        if (n_passes_ == 4 * kTrial) last_choice_ = Crew::Everyone;
    } else if (n_passes_ >= stretch_) {
        crew_ = Crew::Everyone;
        n_passes_ = 0;
        for (double* sum : sums_.all()) *sum *= kRemembered;
    }
}

}  // namespace slipstream::draft
