// Decides when to draft, and what time is worth. Both follow from the measured times of passes and from the accepted
// draft tokens.
//
// Tree size: the tree builder (tree/tree_builder.h) adds nodes while they pay at seconds_per_token(), the recent time
// per committed token, drafting included, at most the time of a plain pass.
//
// Back-off: if drafting is slower than plain decoding, it pauses for 16 passes; each further failed trial doubles the
// pause, up to 512. This bounds the time that drafting can lose on a text. Trials compare expected tokens, not accepted
// ones, since the number of tokens that one pass commits is luck; expected tokens are corrected by realised_fraction().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "draft/control/pass_curve.h"

namespace slipstream::draft {

/// Time and result of one pass of the target.
struct PassOutcome {
    std::int64_t n_nodes = 1;    // nodes of the pass's tree, node 0 included; 1: a plain pass
    std::int64_t n_tokens = 1;   // committed
    double pass_seconds = 0.0;   // time of the target's pass
    double draft_seconds = 0.0;  // time of proposing the tree and of learning from its verification
    double expected = 0.0;       // tokens that the tree was expected to commit, at least 1; 0: not known
    bool guessed = false;        // drafting was tried, even if it found no draft token
};

/// Whether the target can draft over its KV view for the next pass, if that is a source: not at the start of a text,
/// before the view is built.
enum class ViewReady : std::uint8_t { No, Yes };

/// Counts of pauses since the controller was made, and the reason of the last one.
struct BackOff {
    std::int64_t passes = 0;     // passes without draft tokens because drafting paused
    std::int64_t of_passes = 0;  // all passes that should_draft() was asked about
    /// Time with draft tokens / time of plain decoding for the same tokens, in the trial before the last pause.
    double slowdown = 1.0;
};

/// Decides when to draft, for one sequence at a time. Not thread-safe.
class DraftControl {
public:
    DraftControl(std::int64_t max_nodes, PlannedSeconds plan) : curve_(max_nodes, std::move(plan)) {}

    /// Returns the curve of the target's pass times, which this object owns. record() adds each pass to it.
    [[nodiscard]] PassCurve& curve() { return curve_; }
    [[nodiscard]] const PassCurve& curve() const { return curve_; }
    /// Decides whether the next pass carries draft tokens. Call once per pass; `text_tokens` is the length of the
    /// sequence. Returns false during a pause. If `probes` is true (the tree size depends on measured times), also
    /// returns false when a plain pass is due, so that its time is known. The first one is due before the view is
    /// ready, since passes without it commit few tokens. Passes without it and with it are counted apart for the same
    /// reason.
    [[nodiscard]] bool should_draft(std::int64_t text_tokens, bool probes = true, ViewReady ready = ViewReady::Yes);
    /// Returns the recent seconds per committed token in passes with drafting, at most the time of a plain pass; 0 if
    /// the time of a plain pass is not known. Only passes with a ready view count, or only those without one, as the
    /// last should_draft() was told; so too in realised_fraction().
    [[nodiscard]] double seconds_per_token() const;
    /// Returns accepted / expected draft tokens of recent passes; above 1 if more were accepted than expected. Starts
    /// at 1; a prior of kTrusted draft tokens keeps it near 1 at first.
    [[nodiscard]] double realised_fraction() const;
    /// Learns from a pass that has run. Call once per pass. Ignores an outcome whose times are not finite or whose
    /// pass_seconds is not positive.
    void record(const PassOutcome& outcome);
    [[nodiscard]] const BackOff& back_off() const { return back_off_; }
    /// Starts another sequence: forgets recent passes and any pause, and keeps the times of passes and back_off().
    void reset() { recents_ = {}, trial_ = {}; }

private:
    static constexpr std::int64_t kFirstPause = 16;  // passes
    struct Recent {                                  // sums over passes with drafting; they decay by kRecent per pass
        double passes = 0.0;
        double seconds = 0.0;
        double tokens = 0.0;
        double hoped = 0.0;  // draft tokens that were expected to be accepted
        double came = 0.0;   // draft tokens that were accepted
    };
    struct Trial {
        std::int64_t pause = 0;                 // remaining passes of the pause
        std::int64_t next_pause = kFirstPause;  // length of the next pause, in passes
        std::int64_t n = 0;                     // passes with drafting since the last pause
        double seconds = 0.0;  // time of these passes but the first, drafting included; decays by kTrialDecay a pass
        double plain_seconds = 0.0;  // estimated time of plain decoding for the same tokens; decays like `seconds`
    };

    void judge(const PassOutcome& outcome);
    [[nodiscard]] Recent& recent() { return recents_[static_cast<std::size_t>(ready_)]; }
    [[nodiscard]] const Recent& recent() const { return recents_[static_cast<std::size_t>(ready_)]; }

    PassCurve curve_;
    ViewReady ready_ = ViewReady::Yes;  // before the running pass
    std::array<Recent, 2> recents_;     // by ViewReady
    Trial trial_;
    BackOff back_off_;
};

}  // namespace slipstream::draft
