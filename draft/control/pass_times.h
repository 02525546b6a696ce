// How long a pass of n nodes takes: measured at load, learnt online. What the tree builder weighs guesses against.
//
// Kept at a few sizes, linear between them, never falling with n: passes that take longer than larger ones were held
// up. Each pass moves all sizes by part of what it took beyond or below what was expected, for a machine is slower in
// the loop than in a measurement, and slower when others use it; and the sizes next to its own by more. A single slow
// one counts little, also where it is the first of its size, if larger ones are known.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream::draft {

class PassTimes {
public:
    /// Sizes up to `max_nodes` (>= 1). Until something is measured a node more costs nothing.
    explicit PassTimes(std::int64_t max_nodes);

    /// A pass over `n_nodes` took `seconds` > 0.
    void add(std::int64_t n_nodes, double seconds);
    /// Predicted seconds of a pass over `n_nodes` (1 to max_nodes).
    [[nodiscard]] double at(std::int64_t n_nodes) const;
    [[nodiscard]] bool measured() const;
    [[nodiscard]] std::int64_t max_nodes() const { return sizes_.back(); }
    /// The sizes at which times are kept, ascending, 1 first.
    [[nodiscard]] std::span<const std::int64_t> sizes() const { return sizes_; }

private:
    void spread();

    std::vector<std::int64_t> sizes_;
    std::vector<double> measured_;  // [sizes], 0: not yet
    std::vector<double> seconds_;   // [sizes]: filled in between, never falling
};

}  // namespace slipstream::draft
