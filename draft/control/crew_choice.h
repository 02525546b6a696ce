// Who is asked for guesses: all sources, the tables alone, the light tables with the draft model (quick to ask), or the
// light tables alone (source.h).
//
// More sources find more tokens, but each takes its time, and where a pass is short that can cost more than it brings.
// A pass with everyone tells what each crew alone would have committed: its walk as far as they named the tokens. So
// one stretch of passes compares all crews over the same text, and luck falls on all of them alike. The best one works
// on; from time to time everyone is asked again, the more rarely the more often that came to the same. Where asking
// everyone takes a good part of a pass, the quick crew begins, for at first there is little text that tables could
// know. Its passes tell as well what the light tables alone would have committed, so they may take over at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slipstream::draft {

enum class Crew : std::uint8_t { Everyone, Tables, Quick, Light };
inline constexpr std::size_t kNumCrews = 4;

/// Whether tables are asked that are not light, and so must know the text.
[[nodiscard]] constexpr bool asks_all_tables(Crew crew) {
    return crew == Crew::Everyone || crew == Crew::Tables;
}
[[nodiscard]] constexpr bool asks_model(Crew crew) {
    return crew == Crew::Everyone || crew == Crew::Quick;
}

/// Tokens that a pass committed, and that it would have committed by the words of one crew alone: at least 1, the
/// target's own; 0 where there is nobody in that crew.
struct WalkShares {
    double tokens = 1.0;
    double by_tables = 1.0;
    double by_quick = 1.0;
    double by_light = 1.0;
    double model_seconds = 0.0;  // that the draft model would have taken in the quick crew beyond what it did
};

/// What a pass with guesses took, in seconds.
struct CrewSeconds {
    double pass = 0.0;    // the target's
    double model = 0.0;   // the draft model's
    double others = 0.0;  // tables, search, learning from the walk
};

class CrewChoice {
public:
    /// For the next pass with guesses.
    [[nodiscard]] Crew next() const { return crew_; }
    /// What became of the pass that next() was asked for.
    void record(const WalkShares& shares, const CrewSeconds& seconds);
    /// Forgets the text, not whether asking everyone is dear, which is the machine's.
    void reset();

private:
    struct Sums {  // decaying
        double tokens = 0.0;
        double by_tables = 0.0;
        double by_quick = 0.0;
        double by_light = 0.0;
        double pass = 0.0;
        double model = 0.0;
        double model_if_quick = 0.0;
        double passes = 0.0;

        void add(const Sums& more);
        void keep(double part);
    };

    [[nodiscard]] static Sums sums_of(const WalkShares& shares, const CrewSeconds& seconds);
    [[nodiscard]] double hope(Crew crew) const;
    [[nodiscard]] double others(Crew crew) const;
    [[nodiscard]] Crew best(double margin) const;
    [[nodiscard]] bool light_would_do() const;
    [[nodiscard]] bool text_is_new() const;
    void record_everyone(const WalkShares& shares, const CrewSeconds& seconds);
    void begin(Crew crew, std::int64_t stretch);

    Crew crew_ = Crew::Everyone;
    Crew last_choice_ = Crew::Everyone;
    bool has_begun_ = false;
    bool is_dear_ = false;       // asking everyone, measured by a pass
    bool has_compared_ = false;  // everyone with the others
    std::int64_t n_passes_ = 0;  // with this crew, since it was chosen
    std::int64_t stretch_ = 0;   // passes until everyone is asked again
    Sums with_everyone_;
    Sums with_quick_;
    std::array<double, kNumCrews> others_{};  // seconds of tables, search, learning: of late, by crew; 0: not known
};

}  // namespace slipstream::draft
