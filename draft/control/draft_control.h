// When and how much to draft: one controller, from the time of passes and from what came true.
//
// A tree is as large as its last node is worth in time (tree/tree_builder.h), and time is worth what it brought of
// late: seconds that a committed token took, with all passes and guessing, and never more than a plain pass takes.
//
// Where guessing loses against plain decoding it pauses for some passes; a trial that loses again doubles the pause, so
// that no text is slower beyond noise. How many tokens one pass commits is a matter of luck, so what is summed up is
// what was expected of it, corrected by how expectations came true in the long run.
#pragma once

#include <cstdint>
#include <utility>

#include "draft/control/pass_curve.h"

namespace slipstream::draft {

/// What became of a pass of the target.
struct PassOutcome {
    std::int64_t n_nodes = 1;
    std::int64_t n_tokens = 1;   // committed
    double pass_seconds = 0.0;   // of the target
    double draft_seconds = 0.0;  // of drafting and learning
    double expected = 0.0;       // tokens that the tree was expected to commit; 0: nobody knows
    bool guessed = false;        // drafting was tried
};

/// How drafting paused since the controller was made.
struct BackOff {
    std::int64_t passes = 0;     // without guesses, for the sake of time
    std::int64_t of_passes = 0;  // all
    double slowdown =
        1.0;  // time with draft tokens / time of plain decoding, for the same tokens, before the last pause
};

class DraftControl {
public:
    DraftControl(std::int64_t max_nodes, PlannedSeconds plan) : curve_(max_nodes, std::move(plan)) {}

    /// What passes of the target take.
    [[nodiscard]] PassCurve& curve() { return curve_; }
    [[nodiscard]] const PassCurve& curve() const { return curve_; }
    /// Whether the next pass, behind a text of so many tokens, is to carry guesses. Called once a pass. `probes`: trees
    /// are as large as pays, so that what a plain pass takes must be known.
    [[nodiscard]] bool should_draft(std::int64_t text_tokens, bool probes = true);
    /// What a committed token takes of late, at most a plain pass; 0 while no pass is known.
    [[nodiscard]] double seconds_per_token() const;
    /// Of the guessed tokens that trees were expected to commit of late, the part that came; above 1 where more did.
    [[nodiscard]] double realised_fraction() const;
    void record(const PassOutcome& outcome);
    [[nodiscard]] const BackOff& back_off() const { return back_off_; }
    /// Another text: what passes take stays known.
    void reset() { recent_ = {}, trial_ = {}; }

private:
    static constexpr std::int64_t kFirstPause = 16;  // passes
    struct Recent {                                  // passes with guesses, decaying
        double passes = 0.0;
        double seconds = 0.0;
        double tokens = 0.0;
        double hoped = 0.0;  // guessed tokens that were expected
        double came = 0.0;
    };
    struct Trial {
        std::int64_t pause = 0;  // passes without guesses that are still to come
        std::int64_t next_pause = kFirstPause;
        std::int64_t n = 0;          // passes with guesses since the last pause
        double seconds = 0.0;        // that they took of late, decaying
        double plain_seconds = 0.0;  // that the same tokens would have taken one by one
    };

    void judge(const PassOutcome& outcome);

    PassCurve curve_;
    Recent recent_;
    Trial trial_;
    BackOff back_off_;
};

}  // namespace slipstream::draft
