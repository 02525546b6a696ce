#include "runtime/loop/sampling/best_order.h"

#include <algorithm>
#include <limits>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

// Counts in whole vectors of places; those past the n-th get meaningless counts.
[[gnu::always_inline]] inline void count_in_lanes(FewLogits& few, std::size_t n) {
    constexpr std::size_t at_once = 16;
    const auto n_whole = static_cast<std::int32_t>((n + at_once - 1) / at_once * at_once);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(n); ++i) {
        const float logit = few.logits[i];
        for (std::int32_t j = 0; j < n_whole; ++j) {
            const float other = few.logits[j];
            few.places[j] += static_cast<std::int32_t>(logit > other) |
                             (static_cast<std::int32_t>(logit == other) & static_cast<std::int32_t>(i < j));
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void count_avx2(FewLogits& few, std::size_t n) {
    count_in_lanes(few, n);
}

__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) void count_avx512(FewLogits& few, std::size_t n) {
    count_in_lanes(few, n);
}
#endif

}  // namespace

void count_better(FewLogits& few, std::size_t n, Lanes lanes) {
    CHECK(n <= kFewToSort, "{} logits", n);
    std::fill(few.logits.begin() + static_cast<std::ptrdiff_t>(n), few.logits.end(),
              -std::numeric_limits<float>::infinity());
    few.places.fill(0);
#if defined(__x86_64__)
    if (lanes == Lanes::Avx512) return count_avx512(few, n);
    if (lanes == Lanes::Avx2) return count_avx2(few, n);
#endif
    CHECK(lanes == Lanes::Portable);
    count_in_lanes(few, n);
}

}  // namespace slipstream
