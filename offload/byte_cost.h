// The cost of computing with bytes that lie in memory, as numbers that are measured or stated.
#pragma once

#include <vector>

namespace slipstream {

/// Seconds that a byte takes in a pass, piecewise linear in the number of vectors that it is multiplied with. Flat
/// while memory bandwidth is the limit, then rising.
class ByteCost {
public:
    struct Point {
        double vectors = 0.0;
        double seconds = 0.0;  // seconds per byte, for all vectors together
    };

    /// Makes a cost of 0.
    ByteCost() = default;
    /// `points` must have ascending vectors > 0, and seconds >= 0 (CHECKed). Below the first point its seconds apply.
    /// Past the last point the seconds per vector of the last one apply.
    explicit ByteCost(std::vector<Point> points);
    /// Makes the roofline of a device: memory of `bytes_per_second`, and `flops_per_second` with `flops_per_byte`
    /// operations for each vector. All > 0 (CHECKed).
    [[nodiscard]] static ByteCost roofline(double bytes_per_second, double flops_per_second, double flops_per_byte);

    /// Returns the seconds per byte for so many vectors.
    [[nodiscard]] double seconds(double vectors) const;
    /// Returns this cost with all seconds multiplied by `factor`.
    [[nodiscard]] ByteCost scaled(double factor) const;
    /// Returns the points that were given to the constructor, or those of roofline() or scaled(); empty: a cost of 0.
    [[nodiscard]] const std::vector<Point>& points() const { return points_; }

private:
    std::vector<Point> points_;
};

}  // namespace slipstream
