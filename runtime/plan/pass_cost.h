// What computing takes, as numbers that are measured on a machine or stated for one that is not there: seconds for each
// byte of weights and of KV, by how many vectors meet it in a pass. From these and a program of blocks follows what a
// pass takes with everything on the device; what streaming adds, offload/residency_plan.h says.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream {

/// Seconds that a byte takes in a pass, piecewise linear in the number of vectors that are multiplied with it (tokens;
/// for KV tokens times query heads of a kv head): flat while memory is the limit, then rising.
class ByteCost {
public:
    struct Point {
        double vectors = 0.0;
        double seconds = 0.0;  // of a byte, all vectors together
    };

    /// Nothing costs anything.
    ByteCost() = default;
    /// `points` ascending in vectors, seconds >= 0 (CHECKed). Below the first its seconds hold, beyond the last the
    /// seconds a vector of the last.
    explicit ByteCost(std::vector<Point> points);
    /// The roofline of a device: `bytes_per_second` of memory, `flops_per_second` at `flops_per_byte` for each vector.
    [[nodiscard]] static ByteCost roofline(double bytes_per_second, double flops_per_second, double flops_per_byte);

    [[nodiscard]] double seconds(double vectors) const;
    /// The same with every time multiplied.
    [[nodiscard]] ByteCost scaled(double factor) const;

private:
    std::vector<Point> points_;
};

struct PassRates {
    std::array<ByteCost, kDTypeCount> weights;  // by type of the matrix
    ByteCost kv;                                // of the KV type in question
    double layer_seconds = 0.0;          // of a layer, whatever is in the pass: launches, reductions between devices
    double layer_token_seconds = 0.0;    // of a layer, for each token: norms, activations, reductions
    double pass_seconds = 0.0;           // of a pass outside layers: embedding, sampling
    double host_bytes_per_second = 0.0;  // that computing asks of host memory; 0 for a card, which has its own
};

}  // namespace slipstream
