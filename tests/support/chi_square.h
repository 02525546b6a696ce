// Pearson's chi-square goodness-of-fit test for counts.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace slipstream {

/// Returns Q(a, x) = Gamma(a, x) / Gamma(a), the upper tail of the gamma distribution: by a series below x = a + 1, by
/// a continued fraction above (DLMF 8.7.1 and 8.9.2).
inline double upper_gamma(double a, double x) {
    if (x <= 0.0) return 1.0;
    const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
    if (x < a + 1.0) {
        double term = 1.0 / a, sum = term;
        for (double n = a + 1.0; term > sum * 1e-16; n += 1.0) sum += term *= x / n;
        return 1.0 - scale * sum;
    }
    double fraction = 0.0;  // evaluated from its innermost term outwards
    for (int n = 1000; n >= 1; --n) fraction = n * (n - a) / (x + 2.0 * n + 1.0 - a - fraction);
    return scale / (x + 1.0 - a - fraction);
}

/// Returns the p-value of `counts` under `probabilities` (which sum to 1): the probability of counts that deviate at
/// least as much. Bins with an expected count below 8 are merged into one, which is left out if its own expected count
/// is below 8. Returns 0 if a bin of probability 0 has a count, NaN if fewer than two bins remain.
inline double chi_square_p_value(std::span<const std::int64_t> counts, std::span<const double> probabilities) {
    constexpr double min_expected = 8.0;
    double n = 0.0;
    for (const std::int64_t count : counts) n += static_cast<double>(count);
    double statistic = 0.0, rare_count = 0.0, rare_expected = 0.0;
    int n_cells = 0;
    const auto add_cell = [&](double count, double expected) {
        statistic += (count - expected) * (count - expected) / expected;
        ++n_cells;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto count = static_cast<double>(counts[i]);
        const double expected = n * probabilities[i];
        if (expected <= 0.0 && count > 0.0) return 0.0;
        if (expected >= min_expected) {
            add_cell(count, expected);
        } else {
            rare_count += count;
            rare_expected += expected;
        }
    }
    if (rare_expected >= min_expected) add_cell(rare_count, rare_expected);
    if (n_cells < 2) return std::numeric_limits<double>::quiet_NaN();
    return upper_gamma(0.5 * (n_cells - 1), 0.5 * statistic);
}

}  // namespace slipstream
