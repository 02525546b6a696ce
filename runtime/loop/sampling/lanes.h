// Vector width for which a loop over a vocabulary is compiled, if it is compiled more than once.
#pragma once

#include <cstdint>

namespace slipstream {

enum class Lanes : std::uint8_t { Portable, Avx2, Avx512 };

/// Returns the widest lanes for which this processor has the instructions.
[[nodiscard]] inline Lanes widest_lanes() {
#if defined(__x86_64__)
    static const Lanes widest = [] {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            return Lanes::Avx512;
        return __builtin_cpu_supports("avx2") ? Lanes::Avx2 : Lanes::Portable;
    }();
    return widest;
#else
    return Lanes::Portable;
#endif
}

}  // namespace slipstream
