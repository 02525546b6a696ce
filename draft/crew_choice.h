// Who is asked for guesses: all sources, the tables alone, the light ones of them (source.h), or the draft model alone.
//
// More sources find more tokens, but each takes its time, and where a pass is short that can cost more than it brings.
// A pass with everyone tells what each crew alone would have committed: its walk as far as they named the tokens. So
// one stretch of passes compares all crews over the same text, and luck falls on all of them alike. The best one works
// on; from time to time everyone is asked again, the more rarely the more often that came to the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slipstream::draft {

enum class Crew : std::uint8_t { Everyone, Tables, Light, Model };
inline constexpr std::size_t kNumCrews = 4;

/// Whether tables are asked that are not light, and so must know the text.
[[nodiscard]] constexpr bool asks_all_tables(Crew crew) {
    return crew == Crew::Everyone || crew == Crew::Tables;
}

/// Tokens that a pass committed, and that it would have committed by the words of one crew alone (at least 1: the
/// target's own).
struct WalkShares {
    double tokens = 1.0;
    double by_tables = 1.0;
    double by_light = 1.0;
    double by_model = 1.0;
    double model_seconds = 0.0;  // that the draft model alone would have taken beyond what it did
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
    void reset() { *this = CrewChoice(); }

private:
    struct Sums {  // decaying, of passes with everyone
        double tokens = 0.0;
        double by_tables = 0.0;
        double by_light = 0.0;
        double by_model = 0.0;
        double pass = 0.0;
        double model = 0.0;
        double model_alone = 0.0;
        double passes = 0.0;

        [[nodiscard]] std::array<double*, 8> all() {
            return {&tokens, &by_tables, &by_light, &by_model, &pass, &model, &model_alone, &passes};
        }
    };

    [[nodiscard]] double hope(Crew crew) const;
    [[nodiscard]] Crew best() const;
    void choose();

    Crew crew_ = Crew::Everyone;
    Crew last_choice_ = Crew::Everyone;
    std::int64_t n_passes_ = 0;  // with this crew, since it was chosen
    std::int64_t stretch_ = 0;   // passes until everyone is asked again
    Sums sums_;
    std::array<double, kNumCrews> others_{};  // seconds of tables, search, learning: of late, by crew; 0: not known
};

}  // namespace slipstream::draft
