// A vector indexed by the signed numbers that this code counts in (positions, nodes, layers, chunks), and the same for
// spans and arrays, so that no index has to be converted where it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace slipstream {

/// A std::vector in all but the type of an index, which is in [0, size()).
template <class T>
class Indexed : public std::vector<T> {
public:
    using std::vector<T>::vector;
    Indexed() = default;
    Indexed(std::vector<T> values) : std::vector<T>(std::move(values)) {}

    [[nodiscard]] decltype(auto) operator[](std::int64_t i) {
        return std::vector<T>::operator[](static_cast<std::size_t>(i));
    }
    [[nodiscard]] decltype(auto) operator[](std::int64_t i) const {
        return std::vector<T>::operator[](static_cast<std::size_t>(i));
    }
};

/// values[i] of a span or an array, by a signed number or an enumerator in [0, size).
template <class Values, class Index>
[[nodiscard]] constexpr decltype(auto) nth(Values&& values, Index i) {
    static_assert(!std::is_same_v<Index, char>, "a byte is no signed number");
    return values[static_cast<std::size_t>(i)];
}

}  // namespace slipstream
