// How long a pass of n nodes takes behind a text: what a plan of the machine says, corrected by the passes seen.
//
// The plan's figure carries the shape: what streams, what rides along free, how attention grows with the text. Each
// pass tells by how much the plan is wrong at its size. Sizes near it are corrected by the same factor, sizes far from
// it less where others were seen nearer to them; what was seen long ago counts less than what was seen now. Of the last
// passes of a size the lower median counts, for a pass is held up by others now and then and never hurried.
//
// When the passes of a size become slower or faster, what is known of others from longer ago moves with them: it is the
// machine that changed. Shape is what was seen at about the same time.
//
// A size beyond all that were seen may be cheaper than the plan says, and would never be tried: so where one try costs
// no more than a hundredth of the time since the last one, up to twice the largest size seen lately the plan's figure
// is taken for kDoubt times too high, but never below what that largest size took.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace slipstream::draft {

/// Seconds that a pass over `n_nodes` behind `text_tokens` committed ones takes by the plan of a machine.
using PlannedSeconds = std::function<double(std::int64_t n_nodes, std::int64_t text_tokens)>;

class PassCurve {
public:
    /// How far a plan may be wrong either way.
    static constexpr double kDoubt = 3.0;

    /// Sizes up to `max_nodes` (>= 1). Without a plan a node more costs nothing until passes say otherwise.
    explicit PassCurve(std::int64_t max_nodes, PlannedSeconds plan = {});

    /// Passes stand behind a text of so many tokens from now on.
    void move_to(std::int64_t text_tokens);
    /// A pass over `n_nodes` behind the text took `seconds` > 0.
    void add(std::int64_t n_nodes, double seconds);
    /// Predicted seconds of a pass over `n_nodes` (1 to max_nodes) behind the text; 0 while nothing is known.
    [[nodiscard]] double at(std::int64_t n_nodes) const;
    /// Whether a plan or a pass has told anything.
    [[nodiscard]] bool known() const { return seconds_.back() > 0.0; }
    /// Whether no plain pass has been seen lately, and one is worth its time: what it takes `matters`, or a pass of
    /// guesses took far longer than planned, so that either the machine is slow or guesses are dear.
    [[nodiscard]] bool wants_plain_pass(bool matters) const;
    [[nodiscard]] bool plain_was_seen() const { return seen_.front().n > 0; }
    [[nodiscard]] std::int64_t max_nodes() const { return sizes_.back(); }
    /// Takes up another plan; what passes told of the one before stays.
    void replan(PlannedSeconds plan) { plan_ = std::move(plan), refresh(); }

private:
    static constexpr std::size_t kKept = 3;
    struct Size {
        double planned = 1.0;                // seconds, behind the text
        std::array<double, kKept> ratios{};  // log of what the last passes took over what was planned
        std::uint32_t n = 0;                 // passes seen
        double weight = 0.0;                 // 1 when seen just now
        [[nodiscard]] double ratio() const;
    };

    void refresh();
    void predict();
    [[nodiscard]] std::size_t nearest(std::int64_t n_nodes) const;
    [[nodiscard]] std::size_t largest_seen() const;  // lately

    PlannedSeconds plan_;
    std::int64_t text_tokens_ = 0;
    std::int64_t planned_for_ = -1;    // text tokens
    std::vector<std::int64_t> sizes_;  // ascending, 1 first: linear between them
    std::vector<Size> seen_;           // [sizes]
    std::vector<double> seconds_;      // [sizes]: predicted, never falling
    double since_try_ = 0.0;           // seconds of passes since one was larger than all before
};

}  // namespace slipstream::draft
