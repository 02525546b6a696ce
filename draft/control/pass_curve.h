// Predicts how long a pass of n nodes takes, as a function of n and of the length of the sequence: the plan's figure,
// corrected by measured passes.
//
// The plan (PlannedSeconds) supplies the shape: what streams, which nodes cost nothing beside it, how attention grows
// with the sequence. Each measured pass gives a ratio measured / planned at its size. The plan's figure for a size is
// multiplied by the weighted mean of these ratios; those of near sizes and recent passes weigh more. Of the last three
// passes of a size the lower median counts, since passes are sometimes delayed and never accelerated.
//
// If the passes of a size become slower or faster, the ratios of sizes that were measured longer ago move by the same
// factor, since the machine has changed. Ratios between sizes are taken from passes of about the same time.
//
// A size above all recently measured ones may be cheaper than planned, and would never be tried. So if trying it costs
// at most a hundredth of the time since the last try, its prediction is divided by kDoubt, but stays at or above the
// time of the largest size measured recently. This holds for sizes up to twice that size.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace slipstream::draft {

/// Planned seconds of a pass over `n_nodes` nodes if `text_tokens` tokens are committed before it (a pass over a KV
/// view: if it has so many slots). Results that are not positive and finite are ignored.
using PlannedSeconds = std::function<double(std::int64_t n_nodes, std::int64_t text_tokens)>;

/// Predicts the seconds of a pass from its number of nodes and the length of the sequence. Not thread-safe.
class PassCurve {
public:
    /// Factor by which a plan may be wrong in either direction.
    static constexpr double kDoubt = 3.0;

    /// Makes a curve for passes of 1 to `max_nodes` nodes (>= 1, CHECKed). Without a plan all sizes are predicted to
    /// take equally long until passes show otherwise.
    explicit PassCurve(std::int64_t max_nodes, PlannedSeconds plan = {});

    /// Sets the number of committed tokens before the passes that follow.
    void move_to(std::int64_t text_tokens);
    /// Learns that a pass over `n_nodes` took `seconds`, at the length last given to move_to(). Values outside [1,
    /// max_nodes()] and seconds that are not positive and finite are ignored.
    void add(std::int64_t n_nodes, double seconds);
    /// Returns the predicted seconds of a pass over `n_nodes`, 1 to max_nodes() (CHECKed); 0 if there is neither a plan
    /// nor a measured pass. Never falls as `n_nodes` grows.
    [[nodiscard]] double at(std::int64_t n_nodes) const;
    /// Returns the most that further nodes bring, in seconds, if each is worth `node_worth` seconds: the maximum over m
    /// of node_worth * (m - n_nodes) - (at(m) - at(n_nodes)), n_nodes <= m <= most_nodes <= max_nodes() (CHECKed). It
    /// can be positive where the next node alone is not worth its time: the second token of a mixture of experts reads
    /// more new experts than later ones.
    [[nodiscard]] double best_growth(std::int64_t n_nodes, double node_worth, std::int64_t most_nodes) const;
    /// Returns true if there is a plan or a measured pass, so that at() predicts something.
    [[nodiscard]] bool known() const { return seconds_.back() > 0.0; }
    /// Returns true if the next pass should be a plain one, to measure it: there is a plan, no plain pass was measured
    /// recently, and either the caller says that its time `matters`, or passes of a size took more than 1.3 times as
    /// long as planned, so that either the machine is slow or nodes are expensive.
    [[nodiscard]] bool wants_plain_pass(bool matters) const;
    /// Returns true if a plain pass was ever measured.
    [[nodiscard]] bool plain_was_seen() const { return seen_.front().n > 0; }
    [[nodiscard]] std::int64_t max_nodes() const { return sizes_.back(); }
    /// Replaces the plan. The ratios measured / planned of the old plan stay.
    void replan(PlannedSeconds plan) { plan_ = std::move(plan), refresh(); }

private:
    static constexpr std::size_t kKept = 3;
    struct Size {
        double planned = 1.0;                // planned seconds of a pass of this size after planned_for_ tokens
        std::array<double, kKept> ratios{};  // ring: log(measured / planned) of the last kKept passes
        std::uint32_t n = 0;                 // passes measured
        double weight = 0.0;                 // recency: 1 after a pass of this size, times kForgetting with every pass
        /// Returns the lower median of `ratios`. Requires n > 0.
        [[nodiscard]] double ratio() const;
    };

    // Asks the plan for all sizes at text_tokens_, then predicts.
    void refresh();
    void predict();
    [[nodiscard]] std::size_t nearest(std::int64_t n_nodes) const;  // index in sizes_ of the nearest size
    [[nodiscard]] std::size_t largest_seen() const;  // index in sizes_ of the largest one measured recently; 0: none

    PlannedSeconds plan_;
    std::int64_t text_tokens_ = 0;
    std::int64_t planned_for_ = -1;  // tokens of the sequence at the last refresh(); move_to() refreshes again once
                                     // length + 256 has changed by an eighth. -1: only in the constructor
    // Numbers of nodes, ascending, 1 to max_nodes; times between them are interpolated.
    std::vector<std::int64_t> sizes_;
    std::vector<Size> seen_;       // [sizes]: plan and measurements of each size
    std::vector<double> seconds_;  // [sizes]: predicted seconds of a pass; never falls as the size grows
    double since_try_ = 0.0;       // seconds of passes since one was larger than all recently measured sizes
};

}  // namespace slipstream::draft
