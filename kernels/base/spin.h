// How a thread waits for what comes within microseconds, on a shared desktop: a little while at full attention, then it
// parks.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream {

/// Looks before a thread parks: about 20 us on the machines we know (a pause is 40-140 cycles): longer than the gap
/// between two ops of a pass, shorter than a scheduler tick, so that a neighbour gets the core while we wait for
/// anything slow. Estimated.
inline constexpr int kSpins = 600;

/// Between two looks.
inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace slipstream
