// Overflow-checked arithmetic for numbers that come from files or from the command line; rounding for sizes.
#pragma once

#include <concepts>
#include <optional>

namespace slipstream {

/// Returns a * b, or nullopt if T cannot hold the product.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
    T result{};
    if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
    return result;
}

/// Returns a + b, or nullopt if T cannot hold the sum.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
    T result{};
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
}

/// Returns the smallest multiple of `step` (> 0) that is >= `value` (>= 0). The caller must make sure that T can hold
/// value + step - 1.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T value, T step) {
    return (value + step - 1) / step * step;
}

/// Returns value / step, rounded up, for `value` >= 0 and `step` > 0. The caller must make sure that T can hold
/// value + step - 1.
template <std::integral T>
[[nodiscard]] constexpr T ceil_div(T value, T step) {
    return (value + step - 1) / step;
}

}  // namespace slipstream
