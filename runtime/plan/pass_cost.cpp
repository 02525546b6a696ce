#include "runtime/plan/pass_cost.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream {

ByteCost::ByteCost(std::vector<Point> points) : points_(std::move(points)) {
    for (std::size_t i = 0; i < points_.size(); ++i)
        CHECK(points_[i].seconds >= 0.0 && points_[i].vectors > (i == 0 ? 0.0 : points_[i - 1].vectors),
              "{} seconds at {} vectors", points_[i].seconds, points_[i].vectors);
}

ByteCost ByteCost::roofline(double bytes_per_second, double flops_per_second, double flops_per_byte) {
    CHECK(bytes_per_second > 0.0 && flops_per_second > 0.0 && flops_per_byte > 0.0);
    const double seconds = 1.0 / bytes_per_second;
    return ByteCost({{.vectors = seconds * flops_per_second / flops_per_byte, .seconds = seconds}});
}

double ByteCost::seconds(double vectors) const {
    if (points_.empty()) return 0.0;
    const auto above =
        std::find_if(points_.begin(), points_.end(), [&](const Point& p) { return p.vectors >= vectors; });
    if (above == points_.begin()) return above->seconds;
    if (above == points_.end()) return points_.back().seconds * vectors / points_.back().vectors;
    const Point& below = *(above - 1);
    return below.seconds +
           (above->seconds - below.seconds) * (vectors - below.vectors) / (above->vectors - below.vectors);
}

ByteCost ByteCost::scaled(double factor) const {
    ByteCost result = *this;
    for (Point& point : result.points_) point.seconds *= factor;
    return result;
}

}  // namespace slipstream
