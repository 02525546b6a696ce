// Short waits on a shared desktop: a thread that expects an event within microseconds polls for a short time and then
// parks.
#pragma once

namespace slipstream {

/// Number of polls before a thread parks, with relax() between two: about 20 us on the machines we know (relax() takes
/// 40 to 140 cycles). Longer than the gap between two ops of a pass; shorter than a scheduler tick, so that other
/// programs get the core while a thread waits for anything slow. Estimated, not measured.
inline constexpr int kSpins = 600;

/// Pauses the core between two polls. Does nothing on architectures other than x86-64 and ARM64.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();  // <immintrin.h> takes a compiler a second, and most files include this one
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace slipstream
