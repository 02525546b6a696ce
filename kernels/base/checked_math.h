// Overflow-checked arithmetic for numbers that come out of files or off the command line.
#pragma once

#include <concepts>
#include <optional>

namespace slipstream {

/// a * b, or nothing where the product does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
    T result{};
    if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
    return result;
}

/// a + b, or nothing where the sum does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
    T result{};
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
}

/// Smallest multiple of `step` (> 0) that is >= value (>= 0). The caller knows that it fits.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T value, T step) {
    return (value + step - 1) / step * step;
}

/// value / step, rounded up, for value >= 0 and step > 0.
template <std::integral T>
[[nodiscard]] constexpr T ceil_div(T value, T step) {
    return (value + step - 1) / step;
}

}  // namespace slipstream
