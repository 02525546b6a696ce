// The cost of computing, as numbers that are measured on a machine, or stated for a machine that is not there: seconds
// per byte of weights and of KV, as a function of the vectors that are multiplied with the byte in a pass. These rates
// and a schedule of items give the time of a pass with everything on the device. offload/residency_plan.h adds the time
// of streaming.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream {

/// Seconds that a byte takes in a pass, piecewise linear in the number of vectors that it is multiplied with: tokens of
/// the pass; for KV, tokens times query heads per kv head. Flat while memory bandwidth is the limit, then rising.
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

/// Rates of one device.
struct PassRates {
    std::array<ByteCost, kDTypeCount> weights;  // [DType of the matrix]: cost of a byte of weights
    ByteCost kv;                                // cost of a byte of the KV cache, in its type
    double layer_seconds = 0.0;                 // seconds per layer, for any pass: launches, reductions between devices
    double layer_token_seconds = 0.0;           // seconds per layer and token: norms, activations, reductions
    double pass_seconds = 0.0;                  // seconds per pass outside the layers: embedding, sampling
    double host_bytes_per_second = 0.0;         // host memory that computing reads; 0 for a GPU, which has its own
};

/// What the time of a pass on one device follows from: its rates, its link from the host, and the host's memory.
struct DeviceSpeed {
    PassRates rates{};
    double link_bytes_per_second = 0.0;    // > 0 if anything streams
    double memory_bytes_per_second = 0.0;  // bandwidth of host memory that this device may use; 0: no limit
    /// Bytes of host memory that computing cannot use per byte that is copied to the ring. Of a CPU device they are
    /// measured: its ring is in host memory, and its cores copy.
    double host_bytes_per_copied_byte = 1.0;
};

}  // namespace slipstream
