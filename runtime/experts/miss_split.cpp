#include "runtime/experts/miss_split.h"

#include <algorithm>
#include <array>

namespace slipstream {

std::string_view expert_misses_name(ExpertMisses misses) {
    static constexpr std::array<std::string_view, 3> kNames{"auto", "copy", "cpu"};
    return kNames[static_cast<std::size_t>(misses)];
}

double MissCost::bytes() const {
    double sum = 0.0;
    for (const Part& part : parts) sum += part.bytes;
    return sum;
}

double MissCost::compute_seconds(double n_tokens) const {
    double seconds = 0.0;
    for (const Part& part : parts) seconds += part.bytes * part.cost.seconds(n_tokens);
    return seconds;
}

std::int64_t missed_to_copy(std::span<const std::int64_t> n_tokens, const MissCost& cost) {
    const double copy = cost.copy_seconds();
    const double memory = cost.memory_seconds();
    double computed = 0.0;
    for (const std::int64_t n : n_tokens) computed += cost.compute_seconds(static_cast<double>(n));
    std::int64_t best = 0;
    double least = 0.0;
    for (std::int64_t n_copied = 0; n_copied <= std::ssize(n_tokens); ++n_copied) {
        const auto copied = static_cast<double>(n_copied);
        const auto in_place = static_cast<double>(std::ssize(n_tokens) - n_copied);
        const double seconds =
            std::max({copied * copy, computed, (copied * cost.rates.host_bytes_per_copied_byte + in_place) * memory});
        if (n_copied == 0 || seconds < least) {
            best = n_copied;
            least = seconds;
        }
        if (n_copied < std::ssize(n_tokens))
            computed -= cost.compute_seconds(static_cast<double>(n_tokens[static_cast<std::size_t>(n_copied)]));
    }
    return best;
}

// With a share s the longest is the maximum of s * copy, (1 - s) * computed and (1 + (factor - 1) * s) * memory. The
// second falls with s, the others rise (factor >= 1): the least maximum is where the second meets the first of them.
double share_to_copy(double n_tokens, const MissCost& cost) {
    const double copy = cost.copy_seconds();
    const double computed = cost.compute_seconds(n_tokens);
    const double memory = cost.memory_seconds();
    if (computed <= memory || computed <= 0.0) return 0.0;
    const double extra = std::max(cost.rates.host_bytes_per_copied_byte - 1.0, 0.0) * memory;
    return std::min(computed / (computed + copy), (computed - memory) / (computed + extra));
}

}  // namespace slipstream
