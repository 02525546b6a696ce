#include "draft/expand_time.h"

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"

namespace slipstream::draft {

void ExpandTime::add(std::int64_t n_tokens, double seconds) {
    CHECK(n_tokens >= 1, "{} tokens", n_tokens);
    const auto index = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(n_tokens))) - 1;
    Class& found = classes_[std::min(index, classes_.size() - 1)];
    if (++found.n_samples == 1) {
        found.tokens = static_cast<double>(n_tokens);
        found.seconds = seconds;
        return;
    }
    const double share = std::max(0.02, 1.0 / static_cast<double>(found.n_samples));
    found.tokens += share * (static_cast<double>(n_tokens) - found.tokens);
    if (seconds > found.seconds) found.seconds = std::min(seconds, found.seconds * (1.0 + share));
    if (seconds < found.seconds) found.seconds = std::max(seconds, found.seconds / (1.0 + share));
}

double ExpandTime::seconds(std::int64_t n_tokens) const {
    const auto wanted = static_cast<double>(n_tokens);
    const Class* below = nullptr;
    for (const Class& at : classes_) {
        if (at.n_samples == 0) continue;
        if (at.tokens >= wanted) {
            // Less than was ever seen: hopefully in proportion, so that it will be tried.
            if (below == nullptr) return at.seconds * wanted / at.tokens;
            const double share = (wanted - below->tokens) / (at.tokens - below->tokens);
            return below->seconds + share * (at.seconds - below->seconds);
        }
        below = &at;
    }
    return below == nullptr ? 0.0 : below->seconds * wanted / below->tokens;
}

}  // namespace slipstream::draft
